package changedblocks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kubernetes-csi/external-snapshot-metadata/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/vmstate/vmstate/pkg/repository/blockfile"
)

const mib = 1 << 20

// stream is one stream of a script: its ranges, one a message, then its error.
type stream struct {
	blocks   []block
	capacity int64 // 0 is 10 MiB
	err      error
	silent   bool // not even a message without ranges
}

// script is a service that plays one stream after the other, the last one for ever.
type script struct {
	api.UnimplementedSnapshotMetadataServer
	mu      sync.Mutex
	streams []stream
	asked   []string
}

func (s *script) next(asked string) stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, asked)
	if len(s.streams) == 1 {
		return s.streams[0]
	}
	now := s.streams[0]
	s.streams = s.streams[1:]
	return now
}

func (s stream) play(send func(capacity int64, blocks []*api.BlockMetadata) error) error {
	capacity := s.capacity
	if capacity == 0 {
		capacity = 10 * mib
	}
	if !s.silent {
		if err := send(capacity, nil); err != nil {
			return err
		}
	}
	for _, b := range s.blocks {
		if err := send(capacity, []*api.BlockMetadata{{ByteOffset: b.offset, SizeBytes: b.size}}); err != nil {
			return err
		}
	}
	return s.err
}

func (s *script) GetMetadataDelta(q *api.GetMetadataDeltaRequest, out grpc.ServerStreamingServer[api.GetMetadataDeltaResponse]) error {
	asked := fmt.Sprintf("%s %s/%s since %s from %d", q.GetSecurityToken(), q.GetNamespace(), q.GetTargetSnapshotName(), q.GetBaseSnapshotId(), q.GetStartingOffset())
	return s.next(asked).play(func(capacity int64, blocks []*api.BlockMetadata) error {
		return out.Send(&api.GetMetadataDeltaResponse{
			BlockMetadataType: api.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: capacity, BlockMetadata: blocks,
		})
	})
}

func (s *script) GetMetadataAllocated(q *api.GetMetadataAllocatedRequest, out grpc.ServerStreamingServer[api.GetMetadataAllocatedResponse]) error {
	asked := fmt.Sprintf("%s %s/%s from %d", q.GetSecurityToken(), q.GetNamespace(), q.GetSnapshotName(), q.GetStartingOffset())
	return s.next(asked).play(func(capacity int64, blocks []*api.BlockMetadata) error {
		return out.Send(&api.GetMetadataAllocatedResponse{
			BlockMetadataType: api.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: capacity, BlockMetadata: blocks,
		})
	})
}

// serve runs s behind TLS and returns how it is reached.
func serve(t *testing.T, s *script) Service {
	t.Helper()
	certificate, ca := certify(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}})))
	api.RegisterSnapshotMetadataServer(server, s)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return Service{
		Address: listener.Addr().String(), CA: ca, Pause: time.Millisecond,
		Token: func() (string, error) { return "token", nil },
	}
}

func certify(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func dial(t *testing.T, s Service) *Client {
	t.Helper()
	c, err := Dial(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// What makes an answer complete, what is taken up, and what is none.
func TestAnswers(t *testing.T) {
	broke := status.Error(codes.Unavailable, "the connection to the driver broke")
	expired := status.Error(codes.Unauthenticated, "unauthenticated")
	whole := []blockfile.Extent{{Offset: mib, Length: mib}, {Offset: 5 * mib, Length: 2 * mib}}
	a, b, c := block{mib, mib}, block{5 * mib, mib}, block{6 * mib, mib}
	for name, tc := range map[string]struct {
		reason  string
		streams []stream
		size    int64
		want    []blockfile.Extent
		err     error
		asked   int
	}{
		"Complete": {
			reason: "asked again, the service has nothing more", want: whole, asked: 2,
			streams: []stream{{blocks: []block{a, b, c}}, {}},
		},
		"ToTheEnd": {
			reason: "nothing can follow the end of the volume", asked: 1,
			streams: []stream{{blocks: []block{a, {5 * mib, 5 * mib}}}},
			want:    []blockfile.Extent{{Offset: mib, Length: mib}, {Offset: 5 * mib, Length: 5 * mib}},
		},
		"EndsEarly": {
			reason: "a stream that ends early without an error is taken up", want: whole, asked: 4,
			streams: []stream{{blocks: []block{a}}, {blocks: []block{b}}, {blocks: []block{c}}, {}},
		},
		"EndsAtOnce": {
			reason: "one that ends before its first range as well", want: whole, asked: 3,
			streams: []stream{{}, {blocks: []block{a, b, c}}, {}},
		},
		"Breaks": {
			reason: "a stream that breaks is taken up behind its last range", want: whole, asked: 4,
			streams: []stream{{blocks: []block{a}, err: broke}, {blocks: []block{b}, err: broke}, {blocks: []block{c}}, {}},
		},
		"TokenExpires": {
			reason: "each stream has a fresh token", want: whole, asked: 3,
			streams: []stream{{blocks: []block{a}, err: expired}, {blocks: []block{b, c}}, {}},
		},
		"BeginsBeforeTheOffset": {
			reason: "fixed blocks need not begin where the last stream ended", want: whole, asked: 3,
			streams: []stream{{blocks: []block{a, b}, err: broke}, {blocks: []block{{5*mib + 4096, 2*mib - 4096}}}, {}},
		},
		"StaysBroken": {
			reason: "progress must be made", err: ErrIncomplete, asked: 1 + maxTries,
			streams: []stream{{blocks: []block{a}, err: broke}, {err: broke}},
		},
		"EndBreaks": {
			reason: "without the last word the answer is not complete", err: ErrIncomplete, asked: 2 + maxTries,
			streams: []stream{{blocks: []block{a, b, c}}, {err: broke}},
		},
		"Silent": {
			reason: "a service that says nothing has not said that nothing changed", err: ErrIncomplete, asked: 2,
			streams: []stream{{silent: true}},
		},
		"NothingChanged": {
			reason: "a service that tells the capacity and no range says so", want: nil, asked: 2,
			streams: []stream{{}},
		},
		"Unsupported": {
			reason: "asking again does not help", err: ErrRefused, asked: 1,
			streams: []stream{{silent: true, err: status.Error(codes.FailedPrecondition, "no changed block tracking")}},
		},
		"RefusedLater": {
			reason: "the base went away meanwhile", err: ErrRefused, asked: 2,
			streams: []stream{{blocks: []block{a}}, {silent: true, err: status.Error(codes.NotFound, "no such snapshot")}},
		},
		"WrongOrder": {
			reason: "what is out of order cannot be trusted", err: ErrMalformed, asked: 1,
			streams: []stream{{blocks: []block{b, a}}},
		},
		"Overlap":    {err: ErrMalformed, asked: 1, streams: []stream{{blocks: []block{a, {mib + 512, 2 * mib}}}}},
		"Empty":      {err: ErrMalformed, asked: 1, streams: []stream{{blocks: []block{{mib, 0}}}}},
		"Negative":   {err: ErrMalformed, asked: 1, streams: []stream{{blocks: []block{{-512, 512}}}}},
		"BehindEnd":  {err: ErrMalformed, asked: 1, streams: []stream{{blocks: []block{{10 * mib, 512}}}}},
		"Overflow":   {err: ErrMalformed, asked: 1, streams: []stream{{blocks: []block{{mib, 1<<63 - 1}}}}},
		"Again":      {err: ErrMalformed, asked: 2, streams: []stream{{blocks: []block{a}}, {blocks: []block{a}}}},
		"OtherSize":  {err: ErrMalformed, asked: 2, streams: []stream{{blocks: []block{a}}, {capacity: 9 * mib}}},
		"TooLarge":   {err: ErrMalformed, asked: 1, size: 9 * mib, streams: []stream{{blocks: []block{a}}}},
		"NoCapacity": {err: ErrMalformed, asked: 1, streams: []stream{{capacity: -1}}},
		"VolumeIsLarger": {
			reason: "of what is behind the driver's capacity nothing is known", size: 12 * mib, asked: 2,
			streams: []stream{{blocks: []block{a}}, {}},
			want:    []blockfile.Extent{{Offset: mib, Length: mib}, {Offset: 10 * mib, Length: 2 * mib}},
		},
		"LastBlockIsWhole": {
			reason: "blocks of fixed length may reach over the end", asked: 1,
			streams: []stream{{blocks: []block{{9 * mib, 4 * mib}}}},
			want:    []blockfile.Extent{{Offset: 9 * mib, Length: mib}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, delta := range []bool{true, false} {
				s := &script{streams: slices.Clone(tc.streams)}
				client := dial(t, serve(t, s))
				size := tc.size
				if size == 0 {
					size = 10 * mib
				}
				var got iter.Seq2[blockfile.Extent, error]
				var err error
				if delta {
					got, err = client.Changed(t.Context(), Snapshot{"prod", "snap"}, "handle", size)
				} else {
					got, err = client.Allocated(t.Context(), Snapshot{"prod", "snap"}, size)
				}
				if !errors.Is(err, tc.err) || len(s.asked) != tc.asked {
					t.Fatalf("%s: error %v, want %v; asked %d times: %q", tc.reason, err, tc.err, len(s.asked), s.asked)
				}
				if err == nil {
					if diff := cmp.Diff(tc.want, listed(got)); diff != "" {
						t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
					}
				}
			}
		})
	}
}

func listed(ranges iter.Seq2[blockfile.Extent, error]) (list []blockfile.Extent) {
	for e := range ranges {
		list = append(list, e)
	}
	return list
}

func TestQuestion(t *testing.T) {
	s := &script{streams: []stream{{blocks: []block{{mib, mib}}}, {}}}
	n := 0
	service := serve(t, s)
	service.Token = func() (string, error) { n++; return fmt.Sprint("token", n), nil }
	if _, err := dial(t, service).Changed(t.Context(), Snapshot{"prod", "snap"}, "handle", 10*mib); err != nil {
		t.Fatal(err)
	}
	want := []string{"token1 prod/snap since handle from 0", "token2 prod/snap since handle from 2097152"}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// A service behind another certificate is not asked, and no token goes to it.
func TestCertificates(t *testing.T) {
	s := &script{streams: []stream{{}}}
	service := serve(t, s)
	_, service.CA = certify(t)
	if _, err := dial(t, service).Allocated(t.Context(), Snapshot{"prod", "snap"}, 10*mib); !errors.Is(err, ErrIncomplete) || len(s.asked) > 0 {
		t.Errorf("error %v, asked %q", err, s.asked)
	}
	service.CA = []byte("not PEM")
	if _, err := Dial(service); !errors.Is(err, ErrService) {
		t.Errorf("no certificate: %v", err)
	}
}

// What a server says when our own time is up is no end: csi-driver-host-path ends its
// stream without an error then.
func TestOwnEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := &Client{service: Service{Token: func() (string, error) { return "", nil }}}
	got, err := client.ask(ctx, 10*mib, func(context.Context, string, int64) (receive, error) {
		return func() (message, error) {
			cancel()
			return &api.GetMetadataDeltaResponse{VolumeCapacityBytes: mib, BlockMetadata: []*api.BlockMetadata{{SizeBytes: mib}}}, nil
		}, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", got != nil, err)
	}
}

// Memory is bounded: too many ranges become fewer that hold them all.
func TestManyRanges(t *testing.T) {
	r := ranges{limit: 100}
	for i := range int64(5000) {
		r.add(i*3*4096, 4096)
	}
	if len(r.list) > 100 {
		t.Errorf("%d ranges", len(r.list))
	}
	at := int64(-1)
	for e := range r.all() {
		if e.Offset <= at || e.Length <= 0 {
			t.Fatalf("range %+v behind one that ends at %d", e, at)
		}
		at = e.Offset + e.Length
	}
	for i := range int64(5000) {
		if !slices.ContainsFunc(r.list, func(e blockfile.Extent) bool { return e.Offset <= i*3*4096 && e.Offset+e.Length >= i*3*4096+4096 }) {
			t.Fatalf("range %d is lost", i)
		}
	}
}
