/* Kinds and sizes of copies, four sizes to the doubling: what is of one class takes the same time within a fifth.
 * SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

#define LEAST_BITS 20 /* of AQ_COPY_LEAST */
#define SIZES 96      /* up to 16 TiB */

static_assert(AQ_COPY_LEAST >> LEAST_BITS == 1, "the smallest is of the first class");

const void *aq_copy_class(aq_copy_kind kind, uint64_t bytes) {
  static const char classes[AQ_COPY_KINDS][SIZES];
  int bits = 63 - __builtin_clzll(bytes | AQ_COPY_LEAST);
  uint64_t size = (uint64_t)(bits - LEAST_BITS) * 4 + ((bytes >> (bits - 2)) & 3);
  return &classes[kind][size < SIZES ? size : SIZES - 1];
}
