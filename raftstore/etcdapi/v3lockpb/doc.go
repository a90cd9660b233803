// Package v3lockpb has the generated messages of etcd's lock service. etcd's own
// are in the module of its whole server. A program that links both cannot
// start: protobuf refuses two messages of one name.
package v3lockpb
