/* cuCheckpointProcessCheckpoint and cuCheckpointProcessRestore: a process that is checkpointed has nothing on the card, so it holds
 * nothing of the slice, until another process of the tenant restores it.
 *
 * Before a restore the room is taken in this process's own name; then what was put aside is in use again, and the room is given
 * back. Whoever is killed in between leaves the restored process charged.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "aside.h"
#include "cards.h"
#include "loader.h"
#include "quota.h"

#define CHECKPOINTED 2 /* CU_PROCESS_STATE_CHECKPOINTED */

/* As much of the arguments as matters here. */
typedef struct {
  void *custom_storage; /* where the contents go is the caller's business, and they stay on the card until it has them */
} checkpoint_args;

typedef struct {
  const struct {
    char from[16], to[16];
  } *pairs; /* cards by UUID */
  unsigned int count;
} restore_args;

static bool guarded(void) { return aq_tenant_mode() == AQ_GUARD; }

/* ---- putting aside ---- */

CUresult cuCheckpointProcessCheckpoint(int pid, const void *options) {
  const checkpoint_args *args = options;
  if (!AQ_CUDA(cuCheckpointProcessCheckpoint)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuCheckpointProcessCheckpoint)(pid, options);
  if (result == CUDA_SUCCESS && guarded() && !(args && args->custom_storage)) aq_aside_put(pid);
  return result;
}

/* ---- bringing back ---- */

/* Whether memory is to come back to another card than it is charged on. */
static bool moves(const restore_args *args) {
  for (unsigned int i = 0; args && args->pairs && i < args->count; i++)
    if (memcmp(args->pairs[i].from, args->pairs[i].to, sizeof args->pairs[i].to)) return true;
  return false;
}

static CUdevice device_of(int card) {
  int count = 0;
  if (AQ_CUDA(cuDeviceGetCount)) AQ_CUDA(cuDeviceGetCount)(&count);
  CUdevice device = 0;
  while (device < count && aq_card_of_device(device) != card) device++;
  return device;
}

typedef struct {
  aq_charge charges[AQ_MAX_CARDS];
} room;

static void give(const room *r) {
  for (int card = 0; card < AQ_MAX_CARDS; card++) aq_quota_give(&r->charges[card]);
}

/* Takes room for what is put aside. False: some card's slice does not hold it, and nothing was taken. */
static bool take(const aq_aside_sums *sums, room *r) {
  for (int card = 0; card < AQ_MAX_CARDS; card++) r->charges[card].card = AQ_NO_CARD;
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    if (!sums->bytes[card] || aq_quota_take_entry(card, sums->bytes[card], &r->charges[card])) continue;
    give(r);
    aq_quota_refused(device_of(card), sums->bytes[card]);
    return false;
  }
  return true;
}

static bool is_checkpointed(int pid) {
  int state;
  return AQ_CUDA(cuCheckpointProcessGetState) && !AQ_CUDA(cuCheckpointProcessGetState)(pid, &state) && state == CHECKPOINTED;
}

CUresult cuCheckpointProcessRestore(int pid, const void *options) {
  room r;
  if (!AQ_CUDA(cuCheckpointProcessRestore)) return CUDA_ERROR_NOT_FOUND;
  if (!guarded()) return AQ_CUDA(cuCheckpointProcessRestore)(pid, options);
  if (moves(options)) return CUDA_ERROR_NOT_SUPPORTED;
  aq_aside_sums sums = aq_aside_of(pid);
  if (!take(&sums, &r)) return CUDA_ERROR_OUT_OF_MEMORY;
  aq_aside_take(pid);
  give(&r);
  CUresult result = AQ_CUDA(cuCheckpointProcessRestore)(pid, options);
  if (result != CUDA_SUCCESS && is_checkpointed(pid)) aq_aside_put(pid);
  return result;
}
