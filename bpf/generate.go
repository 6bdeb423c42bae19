// SPDX-License-Identifier: Apache-2.0

// Package bpf holds the C programs of the datapath, their generated bindings
// and the layouts both sides share (signet.h is the source, layout.go its twin).
//
// The compiled objects are committed; to make them anew one needs clang-19,
// llvm-19 and libbpf-dev. They come out the same on every machine.
package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -tags linux -target bpfel,bpfeb Ipcache ipcache.c -- -O2 -g -Wall -Werror -Iinclude
