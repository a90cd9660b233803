// Command demo stands for election with client-go over Leasehold's key store, and prints when
// it leads. Start it twice, beside `leasehold dev`, and stop one.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/examples/clientgo"
)

func main() {
	servers := flag.String("server", "127.0.0.1:7400", "addresses of servers, separated by commas")
	key := flag.String("key", "leaders/demo", "key to compete for")
	id := flag.String("id", fmt.Sprint("process-", os.Getpid()), "identity of this candidate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *servers, *key, *id); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, servers, key, id string) error {
	native, err := client.New(client.Config{Servers: servers})
	if err != nil {
		return err
	}
	defer native.Close()
	keys, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(servers, ","), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer keys.Close()
	lock := clientgo.NewLock(keys, clientgo.Tokens(native.Coordination(), keys, key), key, id, nil)
	clientgo.RunForever(ctx, clientgo.Config{
		Lock: lock, LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: time.Second,
		Lead: func(ctx context.Context, token uint64) {
			log.Printf("%s leads under token %d, after %d changes", id, token, lock.Transitions())
			<-ctx.Done() // work, and give the token to whatever is written to
		},
		Stopped: func() { log.Printf("%s has stopped", id) },
	}, func(err error) { log.Print(err) })
	return nil
}
