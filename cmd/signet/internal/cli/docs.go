// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signet-identity/signet/cmd/signet/internal/option"
	"github.com/signet-identity/signet/cmd/signet/internal/run"
)

// docs writes the reference pages; it is for those who change the program.
func (a *app) docs() *cobra.Command {
	return &cobra.Command{Use: "docs FOLDER", Short: "Write the reference of commands and options", Hidden: true,
		Args: arguments(1, 1, "a folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			for name, text := range Reference() {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
					return err
				}
			}
			return nil
		}}
}

// Reference is the reference pages by file name. It does not depend on the
// machine or its environment.
func Reference() map[string]string {
	env := Env{Args: []string{"signet"}, LookupEnv: func(string) (string, bool) { return "", false }, Version: "dev"}
	return map[string]string{"cli.md": commandPage(New(env)), "options.md": optionPage()}
}

const generated = "<!-- Made by `make generate` from cmd/signet; do not edit. -->\n\n"

func commandPage(root *cobra.Command) string {
	var b bytes.Buffer
	b.WriteString(generated + "# Commands\n\n" + root.Long + "\n\n")
	eachCommand(root, func(c *cobra.Command) {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), lowerFirst(c.Short))
	})
	eachCommand(root, func(c *cobra.Command) { writeCommand(&b, c) })
	return b.String()
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	for _, sub := range c.Commands() {
		if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		f(sub)
		eachCommand(sub, f)
	}
}

func writeCommand(b *bytes.Buffer, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."))
	if long := strings.TrimSpace(c.Long); long != "" {
		fmt.Fprintf(b, "\n%s\n", long)
	}
	if c.HasSubCommands() && !c.HasLocalFlags() {
		return
	}
	fmt.Fprintf(b, "\n    %s\n", strings.TrimSuffix(c.UseLine(), " [flags]")+" [options]")
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```sh\n%s\n```\n", dedent(c.Example))
	}
	var rows []string
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			rows = append(rows, flagRow(f))
		}
	})
	if len(rows) > 0 {
		fmt.Fprintf(b, "\n| option | default | meaning |\n|---|---|---|\n%s\n", strings.Join(rows, "\n"))
	}
}

func dedent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func flagRow(f *pflag.Flag) string {
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + "`, " + name
	}
	def := f.DefValue
	if f.Name == "holder" {
		def = "pin-<user>"
	}
	usage, _, _ := strings.Cut(f.Usage, " [SIGNET_")
	return fmt.Sprintf("| %s | %s | %s |", name, code(def), cell(usage))
}

func code(s string) string {
	if s == "" || s == "[]" {
		return ""
	}
	return "`" + cell(s) + "`"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func optionPage() string {
	var b bytes.Buffer
	b.WriteString(generated + `# Options

Each option is a flag, an environment variable and, for operator and agent, a key
of a YAML file. Of those that are given, the first counts: flag, variable, file,
default. An unknown key, or a value that is not legal, is an error that names it.
Lists are written with commas, as repeated flags, or as YAML lists.

`)
	operator, agent := (&run.Operator{}).Options(), (&run.Agent{}).Options()
	addConfig(operator, "/etc/signet/operator.yaml")
	addConfig(agent, "/etc/signet/agent.yaml")
	writeOptions(&b, "signet operator", "Configuration file: /etc/signet/operator.yaml, or `--config`.", operator)
	writeOptions(&b, "signet agent", "Configuration file: /etc/signet/agent.yaml, or `--config`.", agent)
	writeOptions(&b, "signet dev", "No configuration file.", (&run.Dev{}).Options())
	writeOptions(&b, "client commands", "identity, apply, endpoint, ipcache, status, gc, node, operator step-down, agent leave. No configuration file.",
		(&clientOptions{}).Options())
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func writeOptions(b *bytes.Buffer, title, about string, t *option.Table) {
	fmt.Fprintf(b, "## %s\n\n%s\n\n| option | variable | default | meaning | legal |\n|---|---|---|---|---|\n", title, about)
	for _, o := range t.Options() {
		fmt.Fprintf(b, "| `--%s` | `%s` | %s | %s | %s |\n", o.Name, o.Env(), code(o.Default), cell(o.Help), cell(o.Legal()))
	}
	b.WriteString("\n")
}
