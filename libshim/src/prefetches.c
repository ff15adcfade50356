/* SPDX-License-Identifier: Apache-2.0 */
#include "prefetches.h"

#include <stdlib.h>

#include "capture.h"
#include "event.h"
#include "loader.h"
#include "stream.h"

typedef struct prefetch {
  struct prefetch *next;
  const aq_resident *one;
  size_t first, count;
  CUevent event; /* NULL: it is not known when it has come */
  void *context; /* of the event, which ends with it */
  bool ending;
} prefetch;

static prefetch *all;

static bool is_over(const prefetch *p) { return p->event && !p->ending && AQ_CUDA(cuEventQuery)(p->event) != CUDA_ERROR_NOT_READY; }

/* A capture of the thread's would forbid to ask. */
void aq_prefetches_look(const aq_resident *gone) {
  int mode = aq_captures_relax();
  for (prefetch **at = &all; *at;) {
    prefetch *p = *at;
    if (p->one != gone && !is_over(p)) {
      at = &p->next;
      continue;
    }
    *at = p->next;
    if (!p->ending) aq_event_end(p->event);
    free(p);
  }
  aq_captures_restore(mode);
}

bool aq_prefetches_name(const aq_resident *one, size_t block) {
  for (const prefetch *p = all; p; p = p->next)
    if (p->one == one && block >= p->first && block - p->first < p->count) return true;
  return false;
}

void aq_prefetches_note(const aq_resident *one, size_t first, size_t count, CUstream stream) {
  prefetch *p = malloc(sizeof *p);
  CUcontext context = NULL;
  aq_prefetches_look(NULL);
  if (!p) {
    if (AQ_CUDA(cuStreamSynchronize)) AQ_CUDA(cuStreamSynchronize)(stream);
    return;
  }
  int mode = aq_captures_relax();
  CUevent event = aq_stream_mark(stream, &context);
  aq_captures_restore(mode);
  *p = (prefetch){.next = all, .one = one, .first = first, .count = count, .event = event, .context = context};
  all = p;
}

/* Also those of allocations in other contexts. */
void aq_prefetches_end_context(const void *name) {
  for (prefetch **at = &all; *at;) {
    prefetch *p = *at;
    if (p->context != name) {
      at = &p->next;
      continue;
    }
    *at = p->next;
    free(p);
  }
}

void aq_prefetches_rename_context(const void *from, void *to, bool ending) {
  for (prefetch *p = all; p; p = p->next) {
    if (p->context != from) continue;
    p->context = to;
    p->ending = ending;
  }
}

void aq_prefetches_forget(void) { all = NULL; }
