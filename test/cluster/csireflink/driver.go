package csireflink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Options of a driver. All are needed but Control and Registration.
type Options struct {
	// Name is the driver's name, Node the node's.
	Name, Node string
	// Root is a folder on a file system with reflink.
	Root string
	// Socket is where CSI is served, Registration where the kubelet is told of it.
	Socket, Registration string
	// Control is the file of Control.
	Control string
}

// Driver is the driver; get one from New.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedNodeServer
	csi.UnimplementedSnapshotMetadataServer
	options  Options
	store    store
	controls controls
	// mu makes calls of the controller and of the node take turns: they share images and loop devices.
	mu sync.Mutex
	// published holds the volume of every target.
	published map[string]string
}

// New prepares the driver's folders.
func New(o Options) (*Driver, error) {
	d := &Driver{options: o, store: store(o.Root), controls: controls{file: o.Control}, published: map[string]string{}}
	if err := d.store.prepare(); err != nil {
		return nil, fmt.Errorf("prepare %q: %w", o.Root, err)
	}
	return d, nil
}

// Run serves until ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept), grpc.StreamInterceptor(d.interceptStream))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterGroupControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	csi.RegisterSnapshotMetadataServer(server, d)
	listener, err := listen(d.options.Socket)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()
	defer server.Stop()
	if d.options.Registration != "" {
		registration, err := d.register(ended)
		if err != nil {
			return err
		}
		defer registration.Stop()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// intercept logs every call that does something, and lets the control file interfere.
func (d *Driver) intercept(ctx context.Context, q any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	start := time.Now()
	answer, err := d.controls.around(ctx, method, func() (any, error) {
		return d.controls.late(ctx, method, q, func(ctx context.Context) (any, error) { return handler(ctx, q) })
	})
	if err == nil {
		lie(answer, d.controls.read().Lies[method])
	}
	switch method {
	case "Probe", "NodeGetCapabilities", "ControllerGetCapabilities", "GetPluginCapabilities":
	default:
		log.Printf("%s %v err=%v", method, time.Since(start).Round(time.Millisecond), err)
	}
	return answer, err
}

// interceptStream does the same for what streams.
func (d *Driver) interceptStream(q any, out grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	method := path.Base(info.FullMethod)
	_, err := d.controls.around(out.Context(), method, func() (any, error) { return nil, handler(q, out) })
	log.Printf("%s err=%v", method, err)
	return err
}

func listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, err
	}
	return net.Listen("unix", socket)
}

// GetPluginInfo names the driver.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.options.Name, VendorVersion: "1.0.0"}, nil
}

// GetPluginCapabilities lists the services besides the node's.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	r := &csi.GetPluginCapabilitiesResponse{}
	for _, kind := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE,
	} {
		service := &csi.PluginCapability_Service{Type: kind}
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: service}})
	}
	return r, nil
}

// Probe says that the driver is ready.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// answer turns an error of the store into one of CSI.
func answer(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return status.Error(codes.NotFound, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
