/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The BPF target has no multiarch folder of its own. These three headers stand
 * in for it, so that no path of the building machine enters the build.
 */
#pragma once
#include <asm-generic/types.h>
