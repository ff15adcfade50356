/* Hooks of what makes and ends contexts. With a context end its events, so while the driver takes it down nobody may ask
 * about them; and so do the plain memory, arrays and modules made in it.
 *
 * A handle may be given out again as soon as the driver has ended what it named. So before the driver is asked to end a
 * context, what hangs on it is moved to a name that no driver gives, and moved back where the driver did not end it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "context.h"

#include <stdlib.h>

#include "compute.h"
#include "lock.h"
#include "overhead.h"
#include "resident.h"
#include "returning.h"
#include "ticket.h"

/* A context made by the program, or a green one. */
typedef struct known {
  void *handle;      /* CUcontext or CUgreenCtx */
  CUcontext context; /* of a green one: what cuCtxFromGreenCtx called it */
  unsigned usage;    /* cuCtxCreate and cuCtxAttach, less cuCtxDetach */
  aq_context_cost cost;
  struct known *next;
} known;

static aq_lock listing; /* over the list and what is in it */
static known *list;

/* ---- the list ---- */

static known **find(const void *handle) {
  known **at = &list;
  while (*at && (*at)->handle != handle) at = &(*at)->next;
  return at;
}

static known *take_out(const void *handle) {
  aq_lock_acquire(&listing);
  known **at = find(handle), *found = *at;
  if (found) *at = found->next;
  aq_lock_release(&listing);
  return found;
}

static void put_in(known *one) {
  if (!one) return;
  aq_lock_acquire(&listing);
  one->next = list;
  list = one;
  aq_lock_release(&listing);
}

/* The address of a byte of ours: a name that no driver gives to a context, for as long as it is needed. */
static void *new_name(void) {
  static char names[4096];
  static unsigned next; /* relaxed: which name is whose does not matter, and so many are not needed at once */
  return &names[__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % sizeof names];
}

/* ---- what hangs on a context ---- */

static void pause_blocks(CUcontext context, void *name) {
  aq_blocks_move_context(context, name);
  aq_residents_pause_context(context, name);
}

static void resume_blocks(void *name, CUcontext context) {
  aq_residents_resume_context(name, context);
  aq_blocks_move_context(name, context);
}

static void end_blocks(void *name) {
  aq_residents_end_context(name);
  aq_blocks_end_context(name);
}

/* ---- making ---- */

typedef struct {
  CUcontext *context;
  void *params;
  int count;
  unsigned int flags;
  CUdevice device;
  uint32_t screen;
} creation;

/* Remembers a context just made, or undoes it. What hung on an earlier context of this name ended with that one. */
static bool keep(void *handle, bool lives, aq_context_cost *cost) {
  known *one = malloc(sizeof *one);
  if (!one || !aq_context_entered(cost)) {
    free(one);
    return false;
  }
  if (lives) aq_context_lives(cost);
  *one = (known){.handle = handle, .usage = 1, .cost = *cost};
  free(take_out(handle));
  put_in(one);
  return true;
}

static void destroy(CUcontext context) {
  if (AQ_CUDA(cuCtxDestroy_v2)) AQ_CUDA(cuCtxDestroy_v2)(context);
}

static CUresult create(CUresult (*make)(const creation *), const creation *wanted) {
  aq_context_cost cost;
  if (!aq_context_enter(wanted->device, AQ_CONTEXT_CREATED, &cost)) return CUDA_ERROR_OUT_OF_MEMORY;
  aq_ticket_switch(NULL);
  CUresult result = make(wanted);
  if (result == CUDA_SUCCESS) {
    end_blocks(*wanted->context);
    if (keep(*wanted->context, true, &cost)) return result;
    destroy(*wanted->context);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  aq_context_leave(&cost);
  return result;
}

#define CREATE(symbol, ...)                                                                             \
  static CUresult make_##symbol(const creation *c) { return AQ_CUDA(symbol)(c->context, __VA_ARGS__); } \
  static CUresult create_##symbol(const creation *c) {                                                  \
    return AQ_CUDA(symbol) ? create(make_##symbol, c) : CUDA_ERROR_NOT_FOUND;                           \
  }

CREATE(cuCtxCreate, c->flags, c->device)
CREATE(cuCtxCreate_v2, c->flags, c->device)
CREATE(cuCtxCreate_v3, c->params, c->count, c->flags, c->device)
CREATE(cuCtxCreate_v4, c->params, c->flags, c->device)
CREATE(cuGLCtxCreate, c->flags, c->device)
CREATE(cuGLCtxCreate_v2, c->flags, c->device)
CREATE(cuVDPAUCtxCreate, c->flags, c->device, c->screen, c->params)
CREATE(cuVDPAUCtxCreate_v2, c->flags, c->device, c->screen, c->params)

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
  return create_cuCtxCreate(&(creation){.context = context, .flags = flags, .device = device});
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
  return create_cuCtxCreate_v2(&(creation){.context = context, .flags = flags, .device = device});
}

CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned int flags, CUdevice device) {
  return create_cuCtxCreate_v3(
      &(creation){.context = context, .params = affinity, .count = count, .flags = flags, .device = device});
}

CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned int flags, CUdevice device) {
  return create_cuCtxCreate_v4(&(creation){.context = context, .params = params, .flags = flags, .device = device});
}

CUresult cuGLCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
  return create_cuGLCtxCreate(&(creation){.context = context, .flags = flags, .device = device});
}

CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
  return create_cuGLCtxCreate_v2(&(creation){.context = context, .flags = flags, .device = device});
}

CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned int flags, CUdevice device, uint32_t screen, void *look_up) {
  return create_cuVDPAUCtxCreate(
      &(creation){.context = context, .params = look_up, .flags = flags, .device = device, .screen = screen});
}

CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device, uint32_t screen, void *look_up) {
  return create_cuVDPAUCtxCreate_v2(
      &(creation){.context = context, .params = look_up, .flags = flags, .device = device, .screen = screen});
}

/* ---- ending ---- */

/* Ends a context that nobody else is attached to. */
static CUresult end_context(CUresult (*end)(CUcontext), CUcontext context) {
  void *name = new_name();
  known *one = take_out(context);
  pause_blocks(context, name);
  aq_compute_pause();
  aq_returns_pause();
  CUresult result = end(context);
  if (result == CUDA_SUCCESS) aq_compute_drop_context(context);
  if (result == CUDA_SUCCESS) aq_returns_end_context(context);
  aq_returns_resume();
  aq_compute_resume();
  if (result != CUDA_SUCCESS) {
    resume_blocks(name, context);
    put_in(one);
    return result;
  }
  end_blocks(name);
  if (one) aq_context_leave(&one->cost);
  free(one);
  return result;
}

static CUresult destroy_context(CUresult (*end)(CUcontext), CUcontext context) {
  return end ? end_context(end, context) : CUDA_ERROR_NOT_FOUND;
}

CUresult cuCtxDestroy(CUcontext context) { return destroy_context(AQ_CUDA(cuCtxDestroy), context); }
CUresult cuCtxDestroy_v2(CUcontext context) { return destroy_context(AQ_CUDA(cuCtxDestroy_v2), context); }

/* Adds to a context's usage count. Returns what it was, or 0 where we do not know the context. */
static unsigned count_usage(CUcontext context, int change) {
  aq_lock_acquire(&listing);
  known *one = *find(context);
  unsigned before = one ? one->usage : 0;
  if (one) one->usage += (unsigned)change;
  aq_lock_release(&listing);
  return before;
}

CUresult cuCtxAttach(CUcontext *context, unsigned int flags) {
  if (!AQ_CUDA(cuCtxAttach)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuCtxAttach)(context, flags);
  if (result == CUDA_SUCCESS) count_usage(*context, 1);
  return result;
}

CUresult cuCtxDetach(CUcontext context) {
  if (!AQ_CUDA(cuCtxDetach)) return CUDA_ERROR_NOT_FOUND;
  if (count_usage(context, -1) != 1) {
    CUresult result = AQ_CUDA(cuCtxDetach)(context);
    if (result != CUDA_SUCCESS) count_usage(context, 1);
    return result;
  }
  CUresult result = end_context(AQ_CUDA(cuCtxDetach), context);
  if (result != CUDA_SUCCESS) count_usage(context, 1);
  return result;
}

/* ---- primary contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  aq_context_cost cost;
  if (!AQ_CUDA(cuDevicePrimaryCtxRetain)) return CUDA_ERROR_NOT_FOUND;
  if (!aq_context_enter(device, AQ_CONTEXT_PRIMARY, &cost)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = AQ_CUDA(cuDevicePrimaryCtxRetain)(context, device);
  if (result == CUDA_SUCCESS && aq_context_entered(&cost)) aq_primary_lives(&cost);
  else aq_context_leave(&cost);
  return result;
}

/* What was made with a green context current lives as long as the primary one. */
static void end_green_ones(CUdevice device) {
  known *one;
  CUcontext context = NULL;
  do {
    aq_lock_acquire(&listing);
    for (one = list; one && !(one->context && one->cost.device == device);) one = one->next;
    context = one ? one->context : NULL;
    if (one) one->context = NULL;
    aq_lock_release(&listing);
    end_blocks(context);
  } while (context);
}

/* Whether the driver says that there is no primary context any more. */
static bool is_asleep(CUdevice device) {
  unsigned int flags;
  int active = 0;
  if (!AQ_CUDA(cuDevicePrimaryCtxGetState)) return false;
  return AQ_CUDA(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && !active;
}

/* What ends the primary context, or only lets go of it: the driver is asked which it was. */
typedef struct {
  CUdevice device;
  CUcontext primary;
  void *name;
} primary_end;

static primary_end before_primary_end(CUdevice device) {
  primary_end ending = {.device = device, .primary = aq_memory_primary(device), .name = new_name()};
  pause_blocks(ending.primary, ending.name);
  aq_compute_pause();
  aq_returns_pause();
  return ending;
}

static CUresult after_primary_end(const primary_end *ending, CUresult result) {
  uint64_t asked = aq_primary_asked(ending->device);
  bool ended = result == CUDA_SUCCESS && is_asleep(ending->device);
  if (ended) aq_compute_drop_device(ending->device);
  if (ended) aq_returns_end_context(ending->primary);
  aq_returns_resume();
  aq_compute_resume();
  if (!ended) {
    resume_blocks(ending->name, ending->primary);
    return result;
  }
  end_blocks(ending->name);
  end_green_ones(ending->device);
  aq_primary_ended(ending->device, asked);
  return result;
}

static CUresult end_primary(CUresult (*end)(CUdevice), CUdevice device) {
  if (!end) return CUDA_ERROR_NOT_FOUND;
  primary_end ending = before_primary_end(device);
  return after_primary_end(&ending, end(device));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return end_primary(AQ_CUDA(cuDevicePrimaryCtxRelease), device); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return end_primary(AQ_CUDA(cuDevicePrimaryCtxRelease_v2), device); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return end_primary(AQ_CUDA(cuDevicePrimaryCtxReset), device); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return end_primary(AQ_CUDA(cuDevicePrimaryCtxReset_v2), device); }

/* ---- green contexts: each retains the primary one ---- */

static void destroy_green(CUgreenCtx green) {
  if (AQ_CUDA(cuGreenCtxDestroy)) AQ_CUDA(cuGreenCtxDestroy)(green);
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned int flags) {
  aq_context_cost cost;
  if (!AQ_CUDA(cuGreenCtxCreate)) return CUDA_ERROR_NOT_FOUND;
  if (!aq_context_enter(device, AQ_CONTEXT_GREEN, &cost)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = AQ_CUDA(cuGreenCtxCreate)(green, resources, device, flags);
  bool kept = result == CUDA_SUCCESS && keep(*green, false, &cost);
  if (kept) {
    aq_context_cost primary; /* joins what the green one has paid for */
    if (aq_context_enter(device, AQ_CONTEXT_GREEN, &primary)) aq_primary_lives(&primary);
    return result;
  }
  if (result == CUDA_SUCCESS) destroy_green(*green);
  aq_context_leave(&cost);
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
  if (!AQ_CUDA(cuCtxFromGreenCtx)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuCtxFromGreenCtx)(context, green);
  if (result != CUDA_SUCCESS) return result;
  aq_lock_acquire(&listing);
  known *one = *find(green);
  if (one) one->context = *context;
  aq_lock_release(&listing);
  return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  if (!AQ_CUDA(cuGreenCtxDestroy)) return CUDA_ERROR_NOT_FOUND;
  known *one = take_out(green);
  if (!one) return AQ_CUDA(cuGreenCtxDestroy)(green);
  primary_end ending = before_primary_end(one->cost.device);
  pause_blocks(one->context, ending.name);
  CUresult result = AQ_CUDA(cuGreenCtxDestroy)(green);
  if (result == CUDA_SUCCESS) aq_compute_drop_context(one->context);
  if (result == CUDA_SUCCESS) aq_returns_end_context(one->context);
  after_primary_end(&ending, result);
  if (result != CUDA_SUCCESS) {
    put_in(one);
    return result;
  }
  aq_context_leave(&one->cost);
  free(one);
  return result;
}

void aq_contexts_forget(void) {
  aq_lock_reset(&listing);
  list = NULL;
}
