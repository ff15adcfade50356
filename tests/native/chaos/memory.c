/* Plain, pitched and managed memory, pools, arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

static void keep(object *o, kind what, uint64_t value, size_t bytes) {
  o->kind = what;
  o->value = value;
  o->bytes = bytes;
}

static uint64_t rounding(size_t bytes) { return bytes % BLOCK ? BLOCK : 0; }

void take_memory(actor *a, object *o) {
  uint64_t address;
  size_t bytes = any_size(a);
  allow(o, rounding(bytes));
  if (FITS(cuMemAlloc_v2(&address, bytes))) keep(o, MEMORY, address, bytes);
  o->shareable = o->kind == MEMORY && bytes % BLOCK == 0;
}

void take_pitched(actor *a, object *o) {
  uint64_t address;
  size_t pitch, width = 1 + dice(a, 9000), rows = 1 + dice(a, 2000);
  allow(o, BLOCK);
  if (FITS(cuMemAllocPitch_v2(&address, &pitch, width, rows, 4 << dice(a, 3)))) keep(o, MEMORY, address, pitch * rows);
}

/* Moved to the card, away from it, or advised on. */
static void move_about(actor *a, const object *o) {
  int where = dice(a, 2) ? 0 : -1;
  if (dice(a, 2)) FITS(cuMemAdvise(o->value, o->bytes, 1 + (int)dice(a, 6), where));
  if (dice(a, 2)) FITS(cuMemPrefetchAsync(o->value, o->bytes, where, a->stream));
}

void take_managed(actor *a, object *o) {
  uint64_t address;
  size_t bytes = any_size(a);
  allow(o, rounding(bytes));
  if (!FITS(cuMemAllocManaged(&address, bytes, 1))) return;
  keep(o, MEMORY, address, bytes);
  move_about(a, o);
}

void take_async(actor *a, object *o) {
  uint64_t address;
  size_t bytes = any_size(a);
  allow(o, rounding(bytes)); /* it may overflow to the host and come back as managed memory */
  if (FITS(cuMemAllocAsync(&address, bytes, a->stream))) keep(o, MEMORY, address, bytes);
}

void take_from_own_pool(actor *a, object *o) {
  uint64_t address, pool, all = UINT64_MAX;
  size_t bytes = any_size(a);
  allow(o, rounding(bytes));
  MUST(cuMemPoolCreate(&pool, &device_memory));
  if (dice(a, 2)) MUST(cuMemPoolSetAttribute(pool, 4, &all));
  if (!FITS(cuMemAllocFromPoolAsync(&address, bytes, pool, a->stream))) {
    MUST(cuMemPoolDestroy(pool));
    return;
  }
  keep(o, POOLED, address, bytes);
  o->other = pool;
}

void take_array(actor *a, object *o) {
  uint64_t array;
  static const int formats[] = {0x01, 0x02, 0x03, 0x08, 0x0a, 0x10, 0x20};
  array_wanted wanted = {1 + dice(a, 3000), dice(a, 1500), dice(a, 4), formats[dice(a, 7)], 1u << dice(a, 3), 0};
  if (!wanted.height) wanted.depth = 0;
  allow(o, BLOCK);
  if (FITS(cuArray3DCreate_v2(&array, &wanted))) keep(o, ARRAY, array, 0);
}

void take_mipmap(actor *a, object *o) {
  uint64_t array;
  array_wanted wanted = {64 + dice(a, 3000), 64 + dice(a, 1500), 0, 0x20, 1u << dice(a, 3), 0};
  allow(o, BLOCK);
  if (FITS(cuMipmappedArrayCreate(&array, &wanted, 1 + dice(a, 6)))) keep(o, MIPMAP, array, 0);
}

/* ---- giving ---- */

static void free_memory(actor *a, const object *o) {
  if (dice(a, 2)) {
    MUST(cuMemFreeAsync(o->value, a->stream));
    if (o->uncharged) MUST(cuStreamSynchronize(a->stream)); /* the card has it until then */
  } else {
    MUST(cuMemFree_v2(o->value));
  }
}

static void free_with_pool(actor *a, const object *o) {
  bool first = dice(a, 2);
  if (first) MUST(cuMemPoolDestroy(o->other));
  free_memory(a, o);
  if (!first) MUST(cuMemPoolDestroy(o->other));
}

void give(actor *a, object *o) {
  switch (o->kind) {
    case MEMORY: free_memory(a, o); break;
    case POOLED: free_with_pool(a, o); break;
    case ARRAY: MUST(cuArrayDestroy(o->value)); break;
    case MIPMAP: MUST(cuMipmappedArrayDestroy(o->value)); break;
    case IMPORTED: MUST(cuIpcCloseMemHandle(o->value)); break;
    case MODULE: MUST(cuModuleUnload((void *)(uintptr_t)o->value)); break;
    case GRAPH: give_graph(o); break;
    default: give_physical(o);
  }
  disallow(o);
}

void shrink(actor *a) {
  uint64_t pool;
  switch (dice(a, 4)) {
    case 0:
      MUST(cuDeviceGetDefaultMemPool(&pool, 0));
      MUST(cuMemPoolTrimTo(pool, dice(a, 64) * MIB));
      break;
    case 1: MUST(cuDeviceGraphMemTrim(0)); break;
    case 2: MUST(cuCtxSynchronize()); break;
    default: MUST(cuStreamSynchronize(a->stream));
  }
}

void ask(actor *a) {
  size_t available, total;
  (void)a;
  MUST(cuMemGetInfo_v2(&available, &total));
  if (available > total) must(-1, "cuMemGetInfo: more free than there is");
}
