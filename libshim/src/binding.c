/* A list: bindings are made once and by the dozen, not by the thousand.
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <stdlib.h>

#include "lock.h"

typedef struct binding {
  aq_place place;
  aq_physical *physical;
  struct binding *next;
} binding;

static aq_lock listing; /* over the list */
static binding *list;

bool aq_bind(const aq_place *place, aq_physical *physical) {
  binding *one = malloc(sizeof *one);
  if (!one) return false;
  aq_lock_acquire(&listing);
  *one = (binding){*place, physical, list};
  list = one;
  aq_lock_release(&listing);
  return true;
}

static bool is_of(const binding *one, aq_bound_to kind, uint64_t holder) {
  return one->place.kind == kind && one->place.holder == holder;
}

static bool lies_in(const binding *one, const aq_place *range) {
  return is_of(one, range->kind, range->holder) && one->place.device == range->device &&
         one->place.offset >= range->offset && one->place.offset - range->offset < range->bytes;
}

/* Takes the first binding in the range, or of the holder where there is no range, off the list. */
static binding *take(aq_bound_to kind, uint64_t holder, const aq_place *range) {
  aq_lock_acquire(&listing);
  binding **at = &list;
  while (*at && !(range ? lies_in(*at, range) : is_of(*at, kind, holder))) at = &(*at)->next;
  binding *found = *at;
  if (found) *at = found->next;
  aq_lock_release(&listing);
  return found;
}

static void end_all(aq_bound_to kind, uint64_t holder, const aq_place *range) {
  for (binding *one; (one = take(kind, holder, range)); free(one)) aq_physical_drop(one->physical);
}

void aq_unbind(const aq_place *range) { end_all(range->kind, range->holder, range); }
void aq_bindings_end(aq_bound_to kind, uint64_t holder) { end_all(kind, holder, NULL); }

void aq_bindings_forget(void) {
  aq_lock_reset(&listing);
  list = NULL;
}
