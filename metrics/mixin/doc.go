// Package mixin is the home of what Leasehold brings for Prometheus and
// Grafana. It is a module of its own, since what generates and tests those
// files nobody needs who builds the product.
//
//   - rules: recording rules and alerts, for deploy/prometheus
//   - dashboards: for deploy/grafana
//   - live: a cluster and a Prometheus as processes, for tests
//   - cmd/mixin: writes all the files
package mixin
