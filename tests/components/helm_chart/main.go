// Renders and lints a chart with helm's own packages: `helm template` and `helm lint`, without clusters and registries.
//
// The whole of helm takes minutes to compile, most of it for parts that no chart test needs. The arguments are helm's.
package main

import (
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/spf13/pflag"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
)

func main() {
	flags := pflag.NewFlagSet("helm", pflag.ExitOnError)
	files := flags.StringArrayP("values", "f", nil, "file of values; may be repeated")
	sets := flags.StringArray("set", nil, "NAME=VALUE; may be repeated")
	namespace := flags.String("namespace", "default", "namespace of the release")
	version := flags.String("kube-version", "", "version of Kubernetes")
	strict := flags.Bool("strict", false, "fail on warnings of lint")
	_ = flags.Parse(os.Args[1:])
	arguments := flags.Args()
	values, err := gather(*files, *sets)
	switch {
	case err != nil:
	case len(arguments) == 3 && arguments[0] == "template":
		err = template(arguments[1], arguments[2], *namespace, *version, values)
	case len(arguments) == 2 && arguments[0] == "lint":
		err = check(arguments[1], *namespace, *strict, values)
	default:
		err = fmt.Errorf("usage: template NAME CHART | lint CHART, with -f, --set, --namespace, --kube-version, --strict")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

// gather merges files of values and settings, later ones over earlier ones.
func gather(files, sets []string) (map[string]interface{}, error) {
	values := map[string]interface{}{}
	for _, file := range files {
		given, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, fmt.Errorf("failed to parse %s: %w", file, err)
		}
		values = chartutil.MergeTables(given.AsMap(), values)
	}
	for _, set := range sets {
		if err := strvals.ParseInto(set, values); err != nil {
			return nil, fmt.Errorf("failed parsing --set data: %w", err)
		}
	}
	return values, nil
}

func template(name, folder, namespace, version string, values map[string]interface{}) error {
	chart, err := loader.Load(folder)
	if err != nil {
		return err
	}
	if err := chartutil.ProcessDependenciesWithMerge(chart, values); err != nil {
		return err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	if version != "" {
		parsed, err := chartutil.ParseKubeVersion(version)
		if err != nil {
			return err
		}
		capabilities.KubeVersion = *parsed
	}
	if wanted := chart.Metadata.KubeVersion; wanted != "" &&
		!chartutil.IsCompatibleRange(wanted, capabilities.KubeVersion.String()) {
		return fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes %s", wanted, version)
	}
	options := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	given, err := chartutil.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return err
	}
	rendered, err := engine.Render(chart, given)
	if err != nil {
		return err
	}
	for file := range rendered {
		if path.Base(file) == "NOTES.txt" {
			delete(rendered, file)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return err
	}
	for _, each := range manifests {
		fmt.Printf("---\n# Source: %s\n%s\n", each.Name, each.Content)
	}
	for _, each := range hooks {
		fmt.Printf("---\n# Source: %s\n%s\n", each.Path, each.Manifest)
	}
	return nil
}

func check(folder, namespace string, strict bool, values map[string]interface{}) error {
	allowed := support.WarningSev
	if strict {
		allowed = support.InfoSev
	}
	failed := []string{}
	for _, message := range lint.All(folder, values, namespace, strict).Messages {
		fmt.Println(message)
		if message.Severity > allowed {
			failed = append(failed, message.Error())
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d findings: %s", len(failed), strings.Join(failed, "; "))
	}
	return nil
}
