package csireflink

import (
	"context"
	"log"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar answers the kubelet, which watches a folder for sockets of new plugins.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, socket string
}

func (d *Driver) register(ended chan<- error) (*grpc.Server, error) {
	listener, err := listen(d.options.Registration)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{name: d.options.Name, socket: d.options.Socket})
	go func() { ended <- server.Serve(listener) }()
	return server, nil
}

// GetInfo tells the kubelet where CSI is served.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus logs what the kubelet made of it.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered=%v %s", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}
