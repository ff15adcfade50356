/* The hook table as rows, and its index by symbol.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hooks.h"

#include <string.h>

#define AQ_HOOK(symbol, name, since, stream, duty, parameters) \
  {#symbol, #name, since, AQ_STREAM_##stream, (void *)symbol},
static const aq_hook rows[] = {
#include "hooks/cuda.def"
#include "hooks/nvml.def"
};
#undef AQ_HOOK

#define ROWS (sizeof rows / sizeof *rows)
#define INDEX_SIZE 2048

static_assert(ROWS * 2 < INDEX_SIZE, "the index stays sparse");

/* Row numbers + 1 by hash, open addressing. Filled on first use; threads that race write the same values, and each
 * sees at least its own. */
static uint16_t by_symbol[INDEX_SIZE];
static int indexed; /* release: the whole index is visible to whoever reads 1 with acquire */

static uint32_t hash(const char *text) {
  uint32_t h = 2166136261u;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 16777619u;
  return h ^ (h >> 15);
}

static void fill_index(void) {
  for (size_t row = 0; row < ROWS; row++) {
    uint32_t at = hash(rows[row].symbol) % INDEX_SIZE;
    for (;; at = (at + 1) % INDEX_SIZE) {
      uint16_t found = __atomic_load_n(&by_symbol[at], __ATOMIC_RELAXED);
      if (found == row + 1) break;
      if (found) continue;
      __atomic_store_n(&by_symbol[at], (uint16_t)(row + 1), __ATOMIC_RELAXED);
      break;
    }
  }
  __atomic_store_n(&indexed, 1, __ATOMIC_RELEASE);
}

const aq_hook *aq_hooks(size_t *count) {
  *count = ROWS;
  return rows;
}

const aq_hook *aq_hook_by_symbol(const char *symbol) {
  if (!__atomic_load_n(&indexed, __ATOMIC_ACQUIRE)) fill_index();
  for (uint32_t at = hash(symbol) % INDEX_SIZE;; at = (at + 1) % INDEX_SIZE) {
    uint16_t found = __atomic_load_n(&by_symbol[at], __ATOMIC_RELAXED);
    if (!found) return NULL;
    if (!strcmp(rows[found - 1].symbol, symbol)) return &rows[found - 1];
  }
}
