package s3store

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Keys are what requests are signed with. SessionToken belongs to those that end.
type Keys struct {
	AccessKeyID, SecretAccessKey, SessionToken string
}

// WebIdentity trades a token of the cluster for credentials of a role, at the security
// token service of the cloud (AssumeRoleWithWebIdentity).
type WebIdentity struct {
	// TokenFile is read each time that credentials end.
	TokenFile string
	// RoleARN to take on; empty where the service finds it by the token.
	RoleARN string
	// Endpoint of the service; empty means that of AWS in the bucket's region.
	Endpoint string
}

// rereadEvery is how often Options.Reread is asked, so that a Secret that is replaced
// while a Job runs is soon in use.
const rereadEvery = 10 * time.Second

// newCredentials chooses where credentials come from.
func newCredentials(opt Options, transport *http.Transport) (*credentials.Credentials, error) {
	// The token service is reached the way the store is: same proxy, same trust.
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	switch {
	case opt.WebIdentity != nil:
		return credentials.New(&webIdentity{of: *opt.WebIdentity, sts: credentials.STSWebIdentity{
			Client: client, STSEndpoint: stsEndpoint(opt), RoleARN: opt.WebIdentity.RoleARN,
			GetWebIDTokenExpiry: opt.WebIdentity.token,
		}}), nil
	case opt.InstanceRole:
		return credentials.New(newInstanceRole(opt, transport)), nil
	case opt.Reread != nil:
		return credentials.New(&rereading{read: opt.Reread}), nil
	case opt.AccessKeyID == "" || opt.SecretAccessKey == "":
		return nil, fmt.Errorf("%w: accessKeyID or secretAccessKey is empty", objectstore.ErrDenied)
	default:
		return credentials.NewStaticV4(opt.AccessKeyID, opt.SecretAccessKey, opt.SessionToken), nil
	}
}

func stsEndpoint(opt Options) string {
	switch {
	case opt.WebIdentity.Endpoint != "":
		return opt.WebIdentity.Endpoint
	case opt.Region == "":
		return credentials.DefaultSTSRoleEndpoint
	default:
		return "https://sts." + opt.Region + ".amazonaws.com"
	}
}

func (w *WebIdentity) token() (*credentials.WebIdentityToken, error) {
	token, err := os.ReadFile(w.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token of the service account: %w", err)
	}
	return &credentials.WebIdentityToken{Token: string(token)}, nil
}

// errCredentials marks what kept us from having credentials at all.
var errCredentials = errors.New("no credentials")

// webIdentity says whose fault it is if a token is not taken.
type webIdentity struct {
	of  WebIdentity
	sts credentials.STSWebIdentity
}

func (w *webIdentity) Retrieve() (credentials.Value, error) { return w.RetrieveWithCredContext(nil) }
func (w *webIdentity) IsExpired() bool                      { return w.sts.IsExpired() }

func (w *webIdentity) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := w.sts.RetrieveWithCredContext(cc)
	if err != nil {
		return v, fmt.Errorf("%w: security token service %s, role %q: %w", errCredentials, w.sts.STSEndpoint, w.of.RoleARN, err)
	}
	return v, nil
}

// instanceRole asks the metadata service of the node, or what the environment names in its place.
type instanceRole struct{ iam credentials.IAM }

// newInstanceRole never asks by way of a proxy: that would answer for the proxy's own node.
func newInstanceRole(opt Options, transport *http.Transport) *instanceRole {
	direct := transport.Clone()
	direct.Proxy = nil
	return &instanceRole{credentials.IAM{Client: &http.Client{Transport: direct, Timeout: time.Minute}, Region: opt.Region}}
}

func (r *instanceRole) Retrieve() (credentials.Value, error) { return r.RetrieveWithCredContext(nil) }
func (r *instanceRole) IsExpired() bool                      { return r.iam.IsExpired() }

func (r *instanceRole) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := r.iam.RetrieveWithCredContext(cc)
	if _, away := errors.AsType[*url.Error](err); away { // it may answer at the next try
		return v, fmt.Errorf("role of the node: %w", err)
	}
	if err != nil {
		return v, fmt.Errorf("%w: role of the node: %w", errCredentials, err)
	}
	return v, nil
}

// rereading asks for the keys again and again.
type rereading struct {
	read func() (Keys, error)
	at   time.Time
}

func (r *rereading) Retrieve() (credentials.Value, error) { return r.RetrieveWithCredContext(nil) }
func (r *rereading) IsExpired() bool                      { return time.Since(r.at) > rereadEvery }

func (r *rereading) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	keys, err := r.read()
	if err != nil {
		return credentials.Value{}, fmt.Errorf("%w: %w", errCredentials, err)
	}
	r.at = time.Now()
	return credentials.Value{
		AccessKeyID: keys.AccessKeyID, SecretAccessKey: keys.SecretAccessKey, SessionToken: keys.SessionToken,
		SignerType: credentials.SignatureV4,
	}, nil
}

// staleCodes say that the credentials are not good, or no longer.
var staleCodes = map[string]bool{
	"InvalidAccessKeyId":    true,
	"SignatureDoesNotMatch": true,
	"ExpiredToken":          true,
	"TokenRefreshRequired":  true,
	"InvalidToken":          true,
	"XAdminUserNotFound":    true, // versitygw
}

// stale tells credentials that were good before and are not now: they were replaced, and
// the new ones reach the pod's files within a minute or two. What never was good is not
// waited for.
func (s *Store) stale(err error) bool {
	resp, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok || !staleCodes[resp.Code] || !s.renewable || !s.accepted.Load() {
		return false
	}
	s.credentials.Expire()
	return true
}
