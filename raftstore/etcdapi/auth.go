package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// auth is etcd's service of that name. There are no users and roles: the lists of
// them are empty, and every call but these and AuthStatus says that
// authentication is not enabled, which clients that were given a name and a
// password accept.
type auth struct {
	pb.UnimplementedAuthServer
	*API
}

// AuthStatus tells that authentication is off.
func (s *auth) AuthStatus(ctx context.Context, _ *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return unary(ctx, s.API, kindAuth, func(context.Context) (*pb.AuthStatusResponse, error) {
		return &pb.AuthStatusResponse{Header: s.header(s.revision()), AuthRevision: 1}, nil
	})
}

// AuthEnable says that authentication is not enabled.
func (s *auth) AuthEnable(context.Context, *pb.AuthEnableRequest) (*pb.AuthEnableResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// Authenticate says that authentication is not enabled.
func (s *auth) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// AuthDisable says that authentication is not enabled.
func (s *auth) AuthDisable(context.Context, *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// UserAdd says that authentication is not enabled.
func (s *auth) UserAdd(context.Context, *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// UserGet says that authentication is not enabled.
func (s *auth) UserGet(context.Context, *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// UserList is an empty list.
func (s *auth) UserList(ctx context.Context, _ *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	return unary(ctx, s.API, kindAuth, func(context.Context) (*pb.AuthUserListResponse, error) {
		return &pb.AuthUserListResponse{Header: s.header(s.revision())}, nil
	})
}

// UserDelete says that authentication is not enabled.
func (s *auth) UserDelete(context.Context, *pb.AuthUserDeleteRequest) (*pb.AuthUserDeleteResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// UserChangePassword says that authentication is not enabled.
func (s *auth) UserChangePassword(context.Context, *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// UserGrantRole says that authentication is not enabled.
func (s *auth) UserGrantRole(context.Context, *pb.AuthUserGrantRoleRequest) (*pb.AuthUserGrantRoleResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// UserRevokeRole says that authentication is not enabled.
func (s *auth) UserRevokeRole(context.Context, *pb.AuthUserRevokeRoleRequest) (*pb.AuthUserRevokeRoleResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// RoleAdd says that authentication is not enabled.
func (s *auth) RoleAdd(context.Context, *pb.AuthRoleAddRequest) (*pb.AuthRoleAddResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// RoleGet says that authentication is not enabled.
func (s *auth) RoleGet(context.Context, *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// RoleList is an empty list.
func (s *auth) RoleList(ctx context.Context, _ *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return unary(ctx, s.API, kindAuth, func(context.Context) (*pb.AuthRoleListResponse, error) {
		return &pb.AuthRoleListResponse{Header: s.header(s.revision())}, nil
	})
}

// RoleDelete says that authentication is not enabled.
func (s *auth) RoleDelete(context.Context, *pb.AuthRoleDeleteRequest) (*pb.AuthRoleDeleteResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// RoleGrantPermission says that authentication is not enabled.
func (s *auth) RoleGrantPermission(context.Context, *pb.AuthRoleGrantPermissionRequest) (*pb.AuthRoleGrantPermissionResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// RoleRevokePermission says that authentication is not enabled.
func (s *auth) RoleRevokePermission(context.Context, *pb.AuthRoleRevokePermissionRequest) (*pb.AuthRoleRevokePermissionResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}
