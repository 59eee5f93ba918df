package changedblocks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/kubernetes-csi/external-snapshot-metadata/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/vmstate/vmstate/pkg/repository/blockfile"
)

// The errors of this package. With each of them more must be read, and the error says why.
var (
	// ErrService: the service's address or certificates cannot be used.
	ErrService = errors.New("snapshot metadata service cannot be used")
	// ErrRefused: the service has no answer to this question.
	ErrRefused = errors.New("snapshot metadata service refused")
	// ErrIncomplete: the answer may lack something.
	ErrIncomplete = errors.New("snapshot metadata is incomplete")
	// ErrMalformed: the answer contradicts itself or the volume.
	ErrMalformed = errors.New("snapshot metadata makes no sense")
)

const (
	// maxTries bounds streams in a row that break without having told anything new.
	maxTries = 4
	// stall is how long a stream may be silent.
	stall = 2 * time.Minute
	// perMessage bounds the ranges of a message, to some 20 KiB.
	perMessage = 1024
)

// Service is a driver's SnapshotMetadataService.
type Service struct {
	// Address is host:port; the certificate must be the host's.
	Address string
	// CA holds the certificates to trust, and no others are, in PEM.
	CA []byte
	// Token returns a token of the service's audience. It is asked for each stream, since
	// tokens expire.
	Token func() (string, error)
	// Pause before a broken stream is taken up, doubled each time; 0 is half a second.
	Pause time.Duration
}

// Snapshot names a VolumeSnapshot.
type Snapshot struct {
	Namespace, Name string
}

// Client asks one service.
type Client struct {
	service Service
	conn    *grpc.ClientConn
	api     api.SnapshotMetadataClient
}

// Dial prepares a client; it connects when it is asked. ErrService.
func Dial(s Service) (*Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.CA) {
		return nil, fmt.Errorf("%w: its CA bundle holds no certificate", ErrService)
	}
	conn, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(
		credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrService, err)
	}
	if s.Pause == 0 {
		s.Pause = 500 * time.Millisecond
	}
	return &Client{service: s, conn: conn, api: api.NewSnapshotMetadataClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Allocated returns what may hold data in a snapshot of a volume of size bytes. The rest
// is zero by the word of the driver.
func (c *Client) Allocated(ctx context.Context, of Snapshot, size int64) (iter.Seq2[blockfile.Extent, error], error) {
	return c.ask(ctx, size, func(ctx context.Context, token string, from int64) (receive, error) {
		stream, err := c.api.GetMetadataAllocated(ctx, &api.GetMetadataAllocatedRequest{
			SecurityToken: token, Namespace: of.Namespace, SnapshotName: of.Name, StartingOffset: from, MaxResults: perMessage,
		})
		return func() (message, error) { return stream.Recv() }, err
	})
}

// Changed returns what may differ between a snapshot of a volume of size bytes and an older
// one, which the driver knows by its handle.
func (c *Client) Changed(ctx context.Context, of Snapshot, baseHandle string, size int64) (iter.Seq2[blockfile.Extent, error], error) {
	return c.ask(ctx, size, func(ctx context.Context, token string, from int64) (receive, error) {
		stream, err := c.api.GetMetadataDelta(ctx, &api.GetMetadataDeltaRequest{
			SecurityToken: token, Namespace: of.Namespace, TargetSnapshotName: of.Name, BaseSnapshotId: baseHandle,
			StartingOffset: from, MaxResults: perMessage,
		})
		return func() (message, error) { return stream.Recv() }, err
	})
}

// message is what both calls stream.
type message interface {
	GetVolumeCapacityBytes() int64
	GetBlockMetadata() []*api.BlockMetadata
}

type receive func() (message, error)

type open func(ctx context.Context, token string, from int64) (receive, error)

// ask opens streams, each behind what the last one told, until one has nothing more.
func (c *Client) ask(ctx context.Context, size int64, open open) (iter.Seq2[blockfile.Extent, error], error) {
	a := &answer{ranges: ranges{limit: maxRanges}, size: size}
	for tries := 0; ; {
		before := a.end
		err := c.stream(ctx, open, a)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err() // whatever the stream said: it may have ended for that reason
		case err == nil && a.capacity > 0 && a.end >= a.capacity:
			return a.finish(), nil
		case err == nil && a.end == before && a.streams > 1:
			if a.capacity == 0 {
				return nil, fmt.Errorf("%w: the stream ended without a word", ErrIncomplete)
			}
			return a.finish(), nil
		case err == nil:
			tries = 0
		case errors.Is(err, ErrMalformed):
			return nil, err
		case refused(err):
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		default:
			if a.end > before {
				tries = 0
			}
			if tries++; tries > maxTries {
				return nil, fmt.Errorf("%w behind byte %d: %w", ErrIncomplete, a.end, err)
			}
			if err := c.pause(ctx, tries); err != nil {
				return nil, err
			}
		}
	}
}

func (c *Client) pause(ctx context.Context, tries int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.service.Pause << (tries - 1)):
		return nil
	}
}

// stream reads one stream to its end. What it told before an error counts.
func (c *Client) stream(ctx context.Context, open open, a *answer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(stall, func() { cancel(fmt.Errorf("nothing was received in %s", stall)) })
	defer watchdog.Stop()
	token, err := c.service.Token()
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	a.streams++
	next, err := open(ctx, token, a.end)
	if err != nil {
		return because(ctx, err)
	}
	at := &place{end: a.end, first: true}
	for {
		m, err := next()
		if errors.Is(err, io.EOF) {
			return context.Cause(ctx) // an end after our own limit is no end
		}
		if err != nil {
			return because(ctx, err)
		}
		watchdog.Reset(stall)
		blocks := make([]block, 0, len(m.GetBlockMetadata()))
		for _, b := range m.GetBlockMetadata() {
			blocks = append(blocks, block{b.GetByteOffset(), b.GetSizeBytes()})
		}
		if err := a.message(m.GetVolumeCapacityBytes(), blocks, at); err != nil {
			return err
		}
	}
}

// because prefers our own reason to end a stream to what the connection made of it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// refused says that asking again gives the same answer. What the sidecar calls unavailable
// may pass, and so may an expired token.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.Unimplemented, codes.InvalidArgument, codes.NotFound, codes.OutOfRange, codes.FailedPrecondition, codes.PermissionDenied:
		return true
	default:
		return false
	}
}
