module github.com/leasehold-dev/leasehold/ownership/console/browsertest

go 1.26.7

replace (
	github.com/leasehold-dev/leasehold => ../../..
	github.com/leasehold-dev/leasehold/metrics/mixin => ../../../metrics/mixin
)

require (
	github.com/chromedp/cdproto v0.160.1
	github.com/chromedp/chromedp v0.23.1
	github.com/leasehold-dev/leasehold v0.0.0
	github.com/leasehold-dev/leasehold/metrics/mixin v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
