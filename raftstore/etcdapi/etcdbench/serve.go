package main

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// serveEtcd is one etcd server with its own defaults: it syncs every write.
func serveEtcd(id, dir, client, peer, all string) error {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster, cfg.LogLevel = id, dir, all, "error"
	cURL, pURL := url.URL{Scheme: "http", Host: client}, url.URL{Scheme: "http", Host: peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{cURL}, []url.URL{cURL}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{pURL}, []url.URL{pURL}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return <-e.Err()
}

// ceiling answers every read at once: what is left is gRPC and the client.
type ceiling struct {
	etcdserverpb.UnimplementedKVServer
}

func (ceiling) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return &etcdserverpb.RangeResponse{
		Header: &etcdserverpb.ResponseHeader{ClusterId: 1 << 62, MemberId: 1 << 62, Revision: 100_000, RaftTerm: 2},
		Kvs:    []*mvccpb.KeyValue{{Key: r.Key, Value: make([]byte, 16), CreateRevision: 100, ModRevision: 100, Version: 1}},
		Count:  1,
	}, nil
}

func serveCeiling(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	etcdserverpb.RegisterKVServer(g, ceiling{})
	return g.Serve(l)
}
