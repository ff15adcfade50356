/* The slice this process lives in: which pages, which limits, whether they are in force.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_TENANT_H
#define AQ_TENANT_H

#include <stdbool.h>

#include "aliquot_pages.h"
#include "hami_env.h"
#include "presence.h"
#include "process.h"

typedef enum {
  AQ_UNDECIDED, /* nobody has looked yet */
  AQ_PASS,      /* no page and no HAMi-core environment: everything goes to the driver untouched */
  AQ_GUARD,     /* limits are known; aq_enforcement() says whether they are in force */
  AQ_DENY,      /* limits were meant but cannot be read: no device memory at all */
} aq_mode;

#define AQ_NO_CARD (-1)
#define AQ_RUN_ID_SIZE 16

typedef struct {
  const aq_control_page *control;
  aq_usage_page *usage;
  aq_usage_annex *annex; /* NULL: the usage page's file has none */
  aq_page_file usage_file;
  aq_process self;
  char run[AQ_RUN_ID_SIZE]; /* the id of the `aliquot run` that this is; else empty */
  const aq_hami_env *hami;  /* HAMi-core's environment, which names cards by CUDA ordinal; NULL: a control page, by UUID */
  bool quiet;               /* nothing is to be said of refused memory */
} aq_tenant;

extern int aq_tenant_decided; /* an aq_mode; release once the rest is written */

/* The slice. Meaningful in AQ_GUARD only. */
extern aq_tenant aq_slice;

aq_mode aq_tenant_decide(void);

static inline aq_mode aq_tenant_mode(void) {
  int mode = __atomic_load_n(&aq_tenant_decided, __ATOMIC_ACQUIRE);
  return __builtin_expect(mode != AQ_UNDECIDED, 1) ? (aq_mode)mode : aq_tenant_decide();
}

/* AQ_ENFORCE_…; the agent may change it at any moment. AQ_GUARD only. */
static inline uint32_t aq_enforcement(void) {
  return __atomic_load_n(&aq_slice.control->enforcement, __ATOMIC_RELAXED);
}

/* Ends the program: a limit that its environment asks for cannot be kept, and there is no agent that a note would reach. Called
 * where the program first uses the card, so that shells and the like, which only pass the environment on, go on. */
__attribute__((format(printf, 1, 2), noreturn)) void aq_tenant_end(const char *format, ...);

/* Writes what could not be enforced into the usage page, where there is one. */
void aq_tenant_note(const char *text);

/* In the child of a fork: the parent's slice is not the child's. Called with no other thread alive. */
void aq_tenant_forget(void);

#endif
