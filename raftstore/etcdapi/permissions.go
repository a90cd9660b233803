package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
)

// Who may call a method. Servers use the relay, and make no calls of their own.
var (
	lookers  = []access.Role{access.Reader, access.Worker, access.Operator}
	users    = []access.Role{access.Worker, access.Operator}
	bosses   = []access.Role{access.Operator}
	insiders = []access.Role{access.Server}
)

// permissionTable has every method that Register adds, and no other: what is not
// in it, nobody may call.
func permissionTable() map[string]permission {
	return map[string]permission{
		pb.KV_Range_FullMethodName:       {roles: lookers, keys: keysOf(checkRange)},
		pb.KV_RangeStream_FullMethodName: {roles: lookers, keys: keysOf(checkRange)},
		pb.KV_Put_FullMethodName:         {roles: users, keys: keysOf(checkPut)},
		pb.KV_DeleteRange_FullMethodName: {roles: users, keys: keysOf(checkDelete)},
		pb.KV_Txn_FullMethodName:         {roles: lookers, keys: keysOf(checkTxn)},
		pb.KV_Compact_FullMethodName:     {roles: bosses, all: wholeStore, changes: true},

		pb.Watch_Watch_FullMethodName: {roles: lookers}, // the keys: see watchcreate.go

		pb.Lease_LeaseGrant_FullMethodName:      {roles: users},
		pb.Lease_LeaseRevoke_FullMethodName:     {roles: users},
		pb.Lease_LeaseKeepAlive_FullMethodName:  {roles: users},
		pb.Lease_LeaseTimeToLive_FullMethodName: {roles: lookers},
		pb.Lease_LeaseLeases_FullMethodName:     {roles: lookers},

		pb.Cluster_MemberList_FullMethodName:    {roles: lookers},
		pb.Cluster_MemberAdd_FullMethodName:     {roles: bosses, all: wholeCluster, changes: true},
		pb.Cluster_MemberRemove_FullMethodName:  {roles: bosses, all: wholeCluster, changes: true},
		pb.Cluster_MemberUpdate_FullMethodName:  {roles: bosses, all: wholeCluster, changes: true},
		pb.Cluster_MemberPromote_FullMethodName: {roles: bosses, all: wholeCluster, changes: true},

		pb.Maintenance_Status_FullMethodName: {roles: lookers},
		pb.Maintenance_Alarm_FullMethodName:  {roles: lookers, keys: keysOf(checkAlarm)},
		// A sum over all keys tells whether a guess of their values is right.
		pb.Maintenance_Hash_FullMethodName:       {roles: lookers, all: wholeStore},
		pb.Maintenance_HashKV_FullMethodName:     {roles: lookers, all: wholeStore},
		pb.Maintenance_Defragment_FullMethodName: {roles: bosses, all: wholeStore, changes: true},
		// A snapshot has the whole state, what credentials and gossip need included.
		pb.Maintenance_Snapshot_FullMethodName:   {roles: bosses, all: wholeCluster, changes: true},
		pb.Maintenance_MoveLeader_FullMethodName: {roles: bosses, all: wholeCluster, changes: true},
		pb.Maintenance_Downgrade_FullMethodName:  {roles: bosses, all: wholeCluster, changes: true},

		pb.Auth_Authenticate_FullMethodName:         {}, // the login: nobody has proven anything before
		pb.Auth_AuthStatus_FullMethodName:           {roles: lookers},
		pb.Auth_AuthEnable_FullMethodName:           {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_AuthDisable_FullMethodName:          {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_UserAdd_FullMethodName:              {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_UserGet_FullMethodName:              {roles: bosses, all: wholeCluster},
		pb.Auth_UserList_FullMethodName:             {roles: bosses, all: wholeCluster},
		pb.Auth_UserDelete_FullMethodName:           {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_UserChangePassword_FullMethodName:   {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_UserGrantRole_FullMethodName:        {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_UserRevokeRole_FullMethodName:       {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_RoleAdd_FullMethodName:              {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_RoleGet_FullMethodName:              {roles: bosses, all: wholeCluster},
		pb.Auth_RoleList_FullMethodName:             {roles: bosses, all: wholeCluster},
		pb.Auth_RoleDelete_FullMethodName:           {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_RoleGrantPermission_FullMethodName:  {roles: bosses, all: wholeCluster, changes: true},
		pb.Auth_RoleRevokePermission_FullMethodName: {roles: bosses, all: wholeCluster, changes: true},

		v3lockpb.Lock_Lock_FullMethodName:   {roles: users, keys: keysOf(checkLock)},
		v3lockpb.Lock_Unlock_FullMethodName: {roles: users, keys: keysOf(checkUnlock)},

		v3electionpb.Election_Campaign_FullMethodName: {roles: users, keys: keysOf(checkCampaign)},
		v3electionpb.Election_Proclaim_FullMethodName: {roles: users, keys: keysOf(checkProclaim)},
		v3electionpb.Election_Resign_FullMethodName:   {roles: users, keys: keysOf(checkResign)},
		v3electionpb.Election_Leader_FullMethodName:   {roles: lookers, keys: keysOf(checkLeader)},
		v3electionpb.Election_Observe_FullMethodName:  {roles: lookers, keys: keysOf(checkLeader)},

		relaypb.RelayService_Exchange_FullMethodName: {roles: insiders},
	}
}

// keysOf makes a check of one type of request a row's.
func keysOf[Req any, PReq message[Req]](check func(access.Identity, PReq) error) func(access.Identity, proto.Message) error {
	return func(id access.Identity, req proto.Message) error {
		r, ok := req.(PReq)
		if !ok {
			return denied(id, string(proto.MessageName(req)), "a request of the method's own type")
		}
		return check(id, r)
	}
}
