package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// auth is etcd's service of that name. A user is a credential: its name, or id, and
// its token are what a client gives as user and password. Credentials are made and
// revoked with Leasehold's own tools; what roles there are and what they allow is
// fixed. Where nobody is asked who they are, there are no users, and the calls say
// that authentication is not enabled, which clients that were given a name and a
// password accept.
type auth struct {
	pb.UnimplementedAuthServer
	*API
}

func (a *API) authEnabled() bool { return a.cfg.Login != nil }

// AuthStatus tells whether users are asked for.
func (s *auth) AuthStatus(ctx context.Context, _ *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return unary(ctx, s.API, kindAuth, func(context.Context) (*pb.AuthStatusResponse, error) {
		return &pb.AuthStatusResponse{Header: s.header(s.revision()), Enabled: s.authEnabled(), AuthRevision: 1}, nil
	})
}

// Authenticate turns a name and a password into the token that is presented with each
// call from then on.
func (s *auth) Authenticate(ctx context.Context, r *pb.AuthenticateRequest) (resp *pb.AuthenticateResponse, err error) {
	defer func() { s.count(kindAuth, err) }()
	switch {
	case !s.authEnabled():
		return nil, rpctypes.ErrGRPCAuthNotEnabled
	case r.GetName() == "":
		return nil, rpctypes.ErrGRPCUserEmpty
	}
	ctx, stop := s.callContext(ctx)
	defer stop()
	token, err := s.cfg.Login(ctx, r.GetName(), r.GetPassword())
	switch status.Code(err) {
	case codes.OK:
		return &pb.AuthenticateResponse{Header: s.header(s.revision()), Token: token}, nil
	case codes.Unauthenticated, codes.ResourceExhausted:
		return nil, s.Unauthenticated(pb.Auth_Authenticate_FullMethodName, false, err)
	}
	return nil, toStatus(err)
}

// Unauthenticated is the refusal of a caller who could not prove who they are, in
// etcd's words: its clients log in anew after "invalid auth token", a hundred times
// in vain if they have no user to do it as, and give up after "user name is empty".
// The details of err, which say more, are kept.
func (a *API) Unauthenticated(method string, nothing bool, err error) error {
	words := rpctypes.ErrGRPCInvalidAuthToken
	if nothing {
		words = rpctypes.ErrGRPCUserEmpty
	}
	switch {
	case status.Code(err) == codes.ResourceExhausted:
		words = rpctypes.ErrGRPCRequestTooManyRequests
	case method == pb.Auth_Authenticate_FullMethodName:
		words = rpctypes.ErrGRPCAuthFailed
	}
	p, as := status.Convert(err).Proto(), status.Convert(words)
	p.Code, p.Message = int32(as.Code()), as.Message()
	return status.ErrorProto(p)
}

// UserList has the names of the credentials.
func (s *auth) UserList(ctx context.Context, _ *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	return unary(ctx, s.API, kindAuth, func(context.Context) (*pb.AuthUserListResponse, error) {
		resp := &pb.AuthUserListResponse{}
		s.cfg.Store.View(func(st *state.State) {
			resp.Header = s.header(st.Keys().Revision())
			for c := range st.Credentials() {
				resp.Users = append(resp.Users, c.Name)
			}
		})
		return resp, nil
	})
}

// UserGet has the role of a credential.
func (s *auth) UserGet(ctx context.Context, r *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	return unary(ctx, s.API, kindAuth, func(context.Context) (resp *pb.AuthUserGetResponse, err error) {
		if !s.authEnabled() {
			return nil, rpctypes.ErrGRPCAuthNotEnabled
		}
		s.cfg.Store.View(func(st *state.State) {
			c, ok := st.CredentialByName(r.GetName())
			if !ok {
				err = rpctypes.ErrGRPCUserNotFound
				return
			}
			resp = &pb.AuthUserGetResponse{Header: s.header(st.Keys().Revision()), Roles: []string{c.Role.String()}}
		})
		return resp, err
	})
}

// RoleList has the roles that a credential can have; none where nobody is asked.
func (s *auth) RoleList(ctx context.Context, _ *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return unary(ctx, s.API, kindAuth, func(context.Context) (*pb.AuthRoleListResponse, error) {
		resp := &pb.AuthRoleListResponse{Header: s.header(s.revision())}
		if s.authEnabled() {
			resp.Roles = []string{access.Operator.String(), access.Reader.String(), access.Worker.String()}
		}
		return resp, nil
	})
}

// notHere refuses what is done with Leasehold's own tools.
func (s *auth) notHere(call, instead string) error {
	if !s.authEnabled() {
		return rpctypes.ErrGRPCAuthNotEnabled
	}
	return unsupported(call, instead)
}

// What to use in place of the calls that change users and roles.
const (
	insteadOfSwitch = "authentication is on wherever a server has TLS certificates"
	insteadOfAdd    = "users are credentials: leasehold credential create NAME --role ROLE --key-prefix PREFIX"
	insteadOfDelete = "users are credentials: leasehold credential revoke NAME"
	insteadOfChange = "users are credentials, which never change: make another one with leasehold credential create, then revoke the old one"
	insteadOfRoles  = "the roles are reader, worker and operator; the keys are those of a credential's --key-prefix"
)

// AuthEnable is refused.
func (s *auth) AuthEnable(context.Context, *pb.AuthEnableRequest) (*pb.AuthEnableResponse, error) {
	return nil, s.notHere("AuthEnable", insteadOfSwitch)
}

// AuthDisable is refused.
func (s *auth) AuthDisable(context.Context, *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	return nil, s.notHere("AuthDisable", insteadOfSwitch)
}

// UserAdd is refused.
func (s *auth) UserAdd(context.Context, *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	return nil, s.notHere("UserAdd", insteadOfAdd)
}

// UserDelete is refused.
func (s *auth) UserDelete(context.Context, *pb.AuthUserDeleteRequest) (*pb.AuthUserDeleteResponse, error) {
	return nil, s.notHere("UserDelete", insteadOfDelete)
}

// UserChangePassword is refused.
func (s *auth) UserChangePassword(context.Context, *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	return nil, s.notHere("UserChangePassword", insteadOfChange)
}

// UserGrantRole is refused.
func (s *auth) UserGrantRole(context.Context, *pb.AuthUserGrantRoleRequest) (*pb.AuthUserGrantRoleResponse, error) {
	return nil, s.notHere("UserGrantRole", insteadOfChange)
}

// UserRevokeRole is refused.
func (s *auth) UserRevokeRole(context.Context, *pb.AuthUserRevokeRoleRequest) (*pb.AuthUserRevokeRoleResponse, error) {
	return nil, s.notHere("UserRevokeRole", insteadOfChange)
}

// RoleAdd is refused.
func (s *auth) RoleAdd(context.Context, *pb.AuthRoleAddRequest) (*pb.AuthRoleAddResponse, error) {
	return nil, s.notHere("RoleAdd", insteadOfRoles)
}

// RoleGet is refused.
func (s *auth) RoleGet(context.Context, *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	return nil, s.notHere("RoleGet", insteadOfRoles)
}

// RoleDelete is refused.
func (s *auth) RoleDelete(context.Context, *pb.AuthRoleDeleteRequest) (*pb.AuthRoleDeleteResponse, error) {
	return nil, s.notHere("RoleDelete", insteadOfRoles)
}

// RoleGrantPermission is refused.
func (s *auth) RoleGrantPermission(context.Context, *pb.AuthRoleGrantPermissionRequest) (*pb.AuthRoleGrantPermissionResponse, error) {
	return nil, s.notHere("RoleGrantPermission", insteadOfRoles)
}

// RoleRevokePermission is refused.
func (s *auth) RoleRevokePermission(context.Context, *pb.AuthRoleRevokePermissionRequest) (*pb.AuthRoleRevokePermissionResponse, error) {
	return nil, s.notHere("RoleRevokePermission", insteadOfRoles)
}
