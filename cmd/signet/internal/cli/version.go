// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/cmd/signet/internal/view"
)

type versionView struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) version() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Show the version", Example: `  signet version -o json`, Args: arguments(0, 0, "")}
	t := &option.Table{}
	var output string
	addOutput(t, &output)
	t.AddFlags(c.Flags())
	completeChoices(c, t)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := t.Resolve(a.LookupEnv, option.File{}); err != nil {
			return err
		}
		v := versionView{Version: a.Version, Commit: commit(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		return view.Print(a.Stdout, output, v, func() view.Table {
			return view.Table{Rows: [][]string{{"version", v.Version}, {"commit", v.Commit}, {"go", v.Go}, {"platform", v.Platform}}}
		})
	}
	return c
}

// commit is what the binary was built from, "unknown" when it does not say.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-modified"
		}
	}
	return revision + modified
}
