package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/controllers"
)

// clusterFlags say which cluster and namespace, as kubectl's own flags do.
type clusterFlags struct {
	kubeconfig, context, namespace string
}

func (f *clusterFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file to use instead of KUBECONFIG or ~/.kube/config")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace instead of the context's")
}

// connection is a cluster and the namespace to work in.
type connection struct {
	client.Client
	config    *rest.Config
	namespace string
}

func (f *clusterFlags) connect() (*connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	overrides.Context.Namespace = f.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("connect to cluster: %w", err)
	}
	return &connection{Client: c, config: config, namespace: namespace}, nil
}

func (c *connection) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.namespace, Name: name}
}
