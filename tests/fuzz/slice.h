/* What the fuzz targets share: a slice of 256 MiB on the simulated machine's first card, in this very process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SLICE_H
#define SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "aliquot_pages.h"

#define MIB (UINT64_C(1) << 20)
#define SLICE_BYTES (256 * MIB)

/* Says which promise was broken, then dies as a sanitizer would. */
#define PROMISE(holds, ...)                                        \
  do {                                                             \
    if (holds) break;                                              \
    fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #holds);    \
    fprintf(stderr, __VA_ARGS__);                                  \
    fputc('\n', stderr);                                           \
    abort();                                                       \
  } while (0)

/* The bytes of an input, read one value after the other; zeroes once they are used up. */
typedef struct {
  const uint8_t *at;
  size_t left;
} input;

uint8_t next_byte(input *in);
uint64_t next_word(input *in);

/* The pages that this process's environment names, mapped for writing as the agent and the tenant may write them. */
aq_control_page *slice_control(void);
aq_usage_page *slice_usage(void);

/* Starts CUDA and makes a context current; once. */
void slice_open(void);

/* What the card itself says is in use, in bytes, beyond what it said at slice_open. */
uint64_t slice_resident(void);

/* The driver's function of this name, looked up as a program does: a hook where there is one. */
void *slice_function(const char *name);

#define CALL(name, types, ...) (((int(*) types)slice_function(name))(__VA_ARGS__))

/* Forgets which slice this process lives in, as a forked child does. */
void slice_forget(void);

#endif
