/* The hook table as rows, and its indices by symbol and by name.
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

/* Row numbers + 1 by hash, open addressing; those of one name lie in the order of the table. Filled on first use; threads that race
 * write the same values, and each sees at least its own. */
static uint16_t by_symbol[INDEX_SIZE], by_name[INDEX_SIZE];
static int indexed; /* release: both indices are visible as a whole to whoever reads 1 with acquire */

static uint32_t hash(const char *text) {
  uint32_t h = 2166136261u;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 16777619u;
  return h ^ (h >> 15);
}

static void enter(uint16_t *index, const char *text, size_t row) {
  for (uint32_t at = hash(text) % INDEX_SIZE;; at = (at + 1) % INDEX_SIZE) {
    uint16_t found = __atomic_load_n(&index[at], __ATOMIC_RELAXED);
    if (found == row + 1) return;
    if (found) continue;
    __atomic_store_n(&index[at], (uint16_t)(row + 1), __ATOMIC_RELAXED);
    return;
  }
}

static void fill_indices(void) {
  if (__atomic_load_n(&indexed, __ATOMIC_ACQUIRE)) return;
  for (size_t row = 0; row < ROWS; row++) {
    enter(by_symbol, rows[row].symbol, row);
    enter(by_name, rows[row].name, row);
  }
  __atomic_store_n(&indexed, 1, __ATOMIC_RELEASE);
}

const aq_hook *aq_hooks(size_t *count) {
  *count = ROWS;
  return rows;
}

const aq_hook *aq_hook_by_symbol(const char *symbol) {
  fill_indices();
  for (uint32_t at = hash(symbol) % INDEX_SIZE;; at = (at + 1) % INDEX_SIZE) {
    uint16_t found = __atomic_load_n(&by_symbol[at], __ATOMIC_RELAXED);
    if (!found) return NULL;
    if (!strcmp(rows[found - 1].symbol, symbol)) return &rows[found - 1];
  }
}

aq_hook_search aq_hooks_named(const char *name) {
  fill_indices();
  return (aq_hook_search){.name = name, .at = hash(name) % INDEX_SIZE};
}

const aq_hook *aq_hook_next(aq_hook_search *search) {
  for (;; search->at = (search->at + 1) % INDEX_SIZE) {
    uint16_t found = __atomic_load_n(&by_name[search->at], __ATOMIC_RELAXED);
    if (!found) return NULL;
    if (strcmp(rows[found - 1].name, search->name)) continue;
    search->at = (search->at + 1) % INDEX_SIZE;
    return &rows[found - 1];
  }
}
