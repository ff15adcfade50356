/* Any sequence of calls that take and give memory, legal or not, by one thread.
 *
 * After every call: what the card holds is charged, but for the driver's rounding, and what is charged is within the slice, unless the slice was made
 * smaller than what is in use. After the sequence everything is freed: then nothing is charged and nothing is held.
 * SPDX-License-Identifier: Apache-2.0 */
#include "slice.h"

#include <string.h>
#include <unistd.h>

#include "aliquot_control.h"
#include "cuda_abi.h"
#include "ledger.h"

#define OBJECTS 24
#define CONTEXTS 3
#define STEPS 400
#define PAGE (2 * MIB)
#define LEVELS 5

typedef enum { NOTHING, MEMORY, ARRAY, MIPMAP, POOL, HANDLE, MAPPING, STREAM, GRAPH, MODULE } kind;

typedef struct {
  kind kind;
  uint64_t value, bytes; /* bytes of what needs them again; a graph's executable */
  int context; /* whose end is its end; 0: the primary one, which stays */
  bool sizeless; /* imported after its last release: charged as far as it is mapped */
} object;

static object objects[OBJECTS];
static void *contexts[CONTEXTS]; /* [0] stays NULL */
static int current;
static unsigned ending; /* blocks that were freed in a stream, at most */

static const uint64_t sizes[] = {0, 1, 511, 4096, MIB, 2 * MIB, 5 * MIB + 3, 31 * MIB, 32 * MIB, 33 * MIB, 64 * MIB, 100 * MIB,
                                 SLICE_BYTES - 1, SLICE_BYTES, SLICE_BYTES + 1, UINT64_C(1) << 40, UINT64_MAX};

static uint64_t a_size(input *in) { return sizes[next_byte(in) % (sizeof sizes / sizeof *sizes)]; }

/* One of a kind, or NULL when there is none where the input points. */
static object *an_object(input *in, kind wanted) {
  object *found = &objects[next_byte(in) % OBJECTS];
  return found->kind == wanted ? found : NULL;
}

static object *a_place(void) {
  for (int i = 0; i < OBJECTS; i++)
    if (objects[i].kind == NOTHING) return &objects[i];
  return NULL;
}

static void keep(object *place, kind what, uint64_t value, uint64_t bytes, int context) {
  *place = (object){what, value, bytes, context, false};
}

static void *a_stream(input *in) {
  const object *stream = an_object(in, STREAM);
  return stream ? (void *)(uintptr_t)stream->value : NULL;
}

/* ---- taking ---- */

static void allocate(input *in, object *place) {
  CUdeviceptr address = 0;
  if (!CALL("cuMemAlloc_v2", (CUdeviceptr *, size_t), &address, a_size(in))) keep(place, MEMORY, address, 0, current);
}

static void allocate_managed(input *in, object *place) {
  CUdeviceptr address = 0;
  size_t bytes = a_size(in);
  if (!CALL("cuMemAllocManaged", (CUdeviceptr *, size_t, unsigned), &address, bytes, 1))
    keep(place, MEMORY, address, bytes, current);
}

static void allocate_pitch(input *in, object *place) {
  CUdeviceptr address = 0;
  size_t pitch, width = a_size(in), height = next_byte(in);
  if (!CALL("cuMemAllocPitch_v2", (CUdeviceptr *, size_t *, size_t, size_t, unsigned), &address, &pitch, width, height, 16))
    keep(place, MEMORY, address, 0, current);
}

static void allocate_async(input *in, object *place) {
  CUdeviceptr address = 0;
  size_t bytes = a_size(in);
  if (!CALL("cuMemAllocAsync", (CUdeviceptr *, size_t, void *), &address, bytes, a_stream(in))) keep(place, MEMORY, address, 0, 0);
}

static void allocate_from_pool(input *in, object *place) {
  CUdeviceptr address = 0;
  size_t bytes = a_size(in);
  const object *pool = an_object(in, POOL);
  void *from = pool ? (void *)(uintptr_t)pool->value : NULL;
  if (!CALL("cuMemAllocFromPoolAsync", (CUdeviceptr *, size_t, void *, void *), &address, bytes, from, a_stream(in)))
    keep(place, MEMORY, address, 0, 0);
}

static void create_pool(input *in, object *place) {
  void *pool = NULL;
  CUmemPoolProps wanted = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .maxSize = next_byte(in) % 2 ? 64 * MIB : 0};
  if (!CALL("cuMemPoolCreate", (void **, const CUmemPoolProps *), &pool, &wanted)) keep(place, POOL, (uintptr_t)pool, 0, 0);
}

static void create_stream(input *in, object *place) {
  void *stream = NULL;
  if (!CALL("cuStreamCreate", (void **, unsigned), &stream, next_byte(in) % 2)) keep(place, STREAM, (uintptr_t)stream, 0, current);
}

static void create_array(input *in, object *place) {
  static const int formats[] = {1, 2, 3, 8, 9, 10, 16, 32, 0x91, 0xc0, 0xc5, 0};
  void *array = NULL;
  CUDA_ARRAY3D_DESCRIPTOR wanted = {.Width = next_byte(in) * 64, .Height = next_byte(in) * 16, .Depth = next_byte(in) % 8};
  wanted.Format = formats[next_byte(in) % 12];
  wanted.NumChannels = 1u << next_byte(in) % 3;
  if (next_byte(in) % 2) {
    if (!CALL("cuArray3DCreate_v2", (void **, const void *), &array, &wanted)) keep(place, ARRAY, (uintptr_t)array, 0, current);
  } else if (!CALL("cuMipmappedArrayCreate", (void **, const void *, unsigned), &array, &wanted, next_byte(in) % (LEVELS + 1))) {
    keep(place, MIPMAP, (uintptr_t)array, 0, current);
  }
}

static void create_handle(input *in, object *place) {
  uint64_t handle = 0, bytes = a_size(in);
  CUmemAllocationProp wanted = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  wanted.requestedHandleTypes = next_byte(in) % 2 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
  if (!CALL("cuMemCreate", (uint64_t *, size_t, const void *, uint64_t), &handle, bytes, &wanted, 0))
    keep(place, HANDLE, handle, bytes, 0);
}

static void map_handle(input *in, object *place) {
  const object *handle = an_object(in, HANDLE);
  CUdeviceptr address = 0;
  if (!handle || CALL("cuMemAddressReserve", (CUdeviceptr *, size_t, size_t, uint64_t, uint64_t), &address, handle->bytes, 0, 0, 0)) return;
  if (CALL("cuMemMap", (CUdeviceptr, size_t, size_t, uint64_t, uint64_t), address, handle->bytes, 0, handle->value, 0))
    CALL("cuMemAddressFree", (CUdeviceptr, size_t), address, handle->bytes);
  else
    keep(place, MAPPING, address, handle->bytes, 0);
}

static void retain_handle(input *in, object *place) {
  const object *mapping = an_object(in, MAPPING);
  uint64_t handle = 0;
  if (mapping && !CALL("cuMemRetainAllocationHandle", (uint64_t *, void *), &handle, (void *)(uintptr_t)mapping->value))
    keep(place, HANDLE, handle, mapping->bytes, 0);
}

/* To this very process, by a file; a handle that was released meanwhile is not what the file names. */
static void pass_on_handle(input *in, object *place) {
  int file = -1;
  uint64_t again = 0;
  object *handle = an_object(in, HANDLE);
  bool released = next_byte(in) % 2;
  if (!handle || CALL("cuMemExportToShareableHandle", (void *, uint64_t, int, uint64_t), &file, handle->value, 1, 0)) return;
  uint64_t bytes = handle->bytes;
  bool sizeless = released || handle->sizeless;
  if (released && !CALL("cuMemRelease", (uint64_t), handle->value)) handle->kind = NOTHING;
  if (!CALL("cuMemImportFromShareableHandle", (uint64_t *, void *, int), &again, (void *)(intptr_t)file, 1)) {
    keep(place, HANDLE, again, bytes, 0);
    place->sizeless = sizeless;
  }
  close(file);
}

/* Captured: an allocation that is freed in the same graph. */
static void create_graph(input *in, object *place) {
  void *stream = a_stream(in), *graph = NULL, *exec = NULL;
  CUdeviceptr address = 0;
  size_t bytes = a_size(in);
  if (!stream || current || CALL("cuStreamBeginCapture_v2", (void *, int), stream, 1)) return;
  if (!CALL("cuMemAllocAsync", (CUdeviceptr *, size_t, void *), &address, bytes, stream))
    CALL("cuMemFreeAsync", (CUdeviceptr, void *), address, stream);
  if (CALL("cuStreamEndCapture", (void *, void **), stream, &graph) || !graph) return;
  if (!CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t), &exec, graph, 0))
    keep(place, GRAPH, (uintptr_t)graph, (uintptr_t)exec, 0);
  else
    CALL("cuGraphDestroy", (void *), graph);
}

static void load_module(input *in, object *place) {
  static const char code[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
  void *module = NULL;
  (void)in;
  if (!CALL("cuModuleLoadData", (void **, const void *), &module, code)) keep(place, MODULE, (uintptr_t)module, 0, current);
}

/* ---- giving ---- */

static int end_graph(const object *o) {
  int status = CALL("cuGraphExecDestroy", (void *), (void *)(uintptr_t)o->bytes);
  return status ? status : CALL("cuGraphDestroy", (void *), (void *)(uintptr_t)o->value);
}

static int unmap(const object *o) {
  int status = CALL("cuMemUnmap", (CUdeviceptr, size_t), o->value, o->bytes);
  return status ? status : CALL("cuMemAddressFree", (CUdeviceptr, size_t), o->value, o->bytes);
}

static int give(const object *o, bool in_stream, void *stream) {
  void *handle = (void *)(uintptr_t)o->value;
  switch (o->kind) {
    case MEMORY:
      if (in_stream) return CALL("cuMemFreeAsync", (CUdeviceptr, void *), o->value, stream);
      return CALL("cuMemFree_v2", (CUdeviceptr), o->value);
    case ARRAY: return CALL("cuArrayDestroy", (void *), handle);
    case MIPMAP: return CALL("cuMipmappedArrayDestroy", (void *), handle);
    case POOL: return CALL("cuMemPoolDestroy", (void *), handle);
    case HANDLE: return CALL("cuMemRelease", (uint64_t), o->value);
    case MAPPING: return unmap(o);
    case STREAM: return CALL("cuStreamDestroy_v2", (void *), handle);
    case GRAPH: return end_graph(o);
    case MODULE: return CALL("cuModuleUnload", (void *), handle);
    default: return -1;
  }
}

static void give_one(input *in) {
  object *o = &objects[next_byte(in) % OBJECTS];
  bool in_stream = next_byte(in) % 2;
  if (o->kind == NOTHING || give(o, in_stream, a_stream(in))) return;
  ending += o->kind == MEMORY && in_stream;
  o->kind = NOTHING;
}

static void free_anything(input *in) { CALL("cuMemFree_v2", (CUdeviceptr), next_word(in)); }

/* ---- all the rest ---- */

static int create_context(input *in, void **context) {
  switch (next_byte(in) % 3) {
    case 0: return CALL("cuCtxCreate_v2", (void **, unsigned, int), context, 0, 0);
    case 1: return CALL("cuCtxCreate_v3", (void **, void *, int, unsigned, int), context, NULL, 0, 0, 0);
    default: return CALL("cuCtxCreate_v4", (void **, void *, unsigned, int), context, NULL, 0, 0);
  }
}

static void switch_context(input *in) {
  int wanted = next_byte(in) % CONTEXTS;
  if (wanted && !contexts[wanted] && create_context(in, &contexts[wanted])) return;
  if (wanted) CALL("cuCtxSetCurrent", (void *), contexts[wanted]);
  else CALL("cuCtxSetCurrent", (void *), contexts[0]);
  current = wanted;
}

static void end_context(int context) {
  if (!contexts[context]) return;
  CALL("cuCtxDestroy_v2", (void *), contexts[context]);
  contexts[context] = NULL;
  for (int i = 0; i < OBJECTS; i++)
    if (objects[i].context == context) objects[i].kind = NOTHING;
  CALL("cuCtxSetCurrent", (void *), contexts[0]);
  current = 0;
}

static void end_a_context(input *in) { end_context(1 + next_byte(in) % (CONTEXTS - 1)); }

static void trim(input *in) {
  const object *pool = an_object(in, POOL);
  void *wanted = pool ? (void *)(uintptr_t)pool->value : NULL;
  if (!pool) CALL("cuDeviceGetDefaultMemPool", (void **, int), &wanted, 0);
  CALL("cuMemPoolTrimTo", (void *, size_t), wanted, a_size(in));
}

/* Managed memory alone has bytes. */
static void prefetch(input *in) {
  const object *memory = an_object(in, MEMORY);
  int to = next_byte(in) % 2 ? 0 : CU_DEVICE_CPU;
  if (!memory || !memory->bytes) return;
  if (next_byte(in) % 2) CALL("cuMemAdvise", (CUdeviceptr, size_t, int, int), memory->value, memory->bytes, 3, to);
  CALL("cuMemPrefetchAsync", (CUdeviceptr, size_t, int, void *), memory->value, memory->bytes, to, a_stream(in));
}

static void launch_graph(input *in) {
  const object *graph = an_object(in, GRAPH);
  if (graph) CALL("cuGraphLaunch", (void *, void *), (void *)(uintptr_t)graph->bytes, a_stream(in));
}

static void trim_graphs(input *in) {
  (void)in;
  CALL("cuDeviceGraphMemTrim", (int), 0);
}

static void synchronize(input *in) {
  if (next_byte(in) % 2) {
    CALL("cuStreamSynchronize", (void *), a_stream(in));
  } else {
    CALL("cuCtxSynchronize", (void));
    ending = 0;
  }
}

static void set_limit(uint64_t bytes, uint32_t enforcement) {
  aq_control_page wanted = *slice_control();
  wanted.cards[0].memory_limit = bytes;
  wanted.enforcement = enforcement;
  aq_control_publish(slice_control(), &wanted);
}

static void change_limit(input *in) { set_limit((uint64_t)next_byte(in) * 4 * MIB, AQ_ENFORCE_ENFORCE); }

static void ask(input *in) {
  size_t available = 1, total = 0;
  (void)in;
  PROMISE(!CALL("cuMemGetInfo_v2", (size_t *, size_t *), &available, &total), "in a good context");
  uint64_t limit = slice_control()->cards[0].memory_limit, used = aq_ledger_used(slice_usage(), 0);
  PROMISE(total == limit, "total %zu, limit %llu", total, (unsigned long long)limit);
  PROMISE(available == (used < limit ? limit - used : 0), "free %zu, used %llu", available, (unsigned long long)used);
}

typedef struct {
  const char *name;
  void (*take)(input *in, object *place);
  void (*other)(input *in);
} call;

static const call calls[] = {
    {"allocate", allocate, NULL},
    {"allocate_managed", allocate_managed, NULL},
    {"allocate_pitch", allocate_pitch, NULL},
    {"allocate_async", allocate_async, NULL},
    {"allocate_from_pool", allocate_from_pool, NULL},
    {"create_pool", create_pool, NULL},
    {"create_stream", create_stream, NULL},
    {"create_array", create_array, NULL},
    {"create_handle", create_handle, NULL},
    {"map_handle", map_handle, NULL},
    {"retain_handle", retain_handle, NULL},
    {"pass_on_handle", pass_on_handle, NULL},
    {"create_graph", create_graph, NULL},
    {"load_module", load_module, NULL},
    {"give_one", NULL, give_one},
    {"give_one", NULL, give_one},
    {"give_one", NULL, give_one},
    {"give_one", NULL, give_one},
    {"prefetch", NULL, prefetch},
    {"launch_graph", NULL, launch_graph},
    {"trim_graphs", NULL, trim_graphs},
    {"free_anything", NULL, free_anything},
    {"switch_context", NULL, switch_context},
    {"end_a_context", NULL, end_a_context},
    {"trim", NULL, trim},
    {"synchronize", NULL, synchronize},
    {"change_limit", NULL, change_limit},
    {"ask", NULL, ask},
};

/* With TRACE in the environment every call is named, with what the account says after it. */
static void trace(const char *name) {
  static int wanted = -1;
  if (wanted < 0) wanted = getenv("TRACE") != NULL;
  if (wanted)
    fprintf(stderr, "%s: charged %llu, held %llu\n", name, (unsigned long long)aq_ledger_used(slice_usage(), 0),
            (unsigned long long)slice_resident());
}

static void step(input *in) {
  const call *next = &calls[next_byte(in) % (sizeof calls / sizeof *calls)];
  object *place = a_place();
  if (next->other) next->other(in);
  else if (place) next->take(in, place);
  trace(next->name);
}

/* What the driver may have rounded up: every block, and every level of a mipmap, to whole pages; and what has no size. */
static uint64_t rounding(void) {
  uint64_t blocks = ending, sizeless = 0;
  for (int i = 0; i < OBJECTS; i++) {
    blocks += objects[i].kind == MEMORY || objects[i].kind == ARRAY;
    blocks += objects[i].kind == MIPMAP ? LEVELS : 0;
    sizeless += objects[i].kind == HANDLE && objects[i].sizeless ? objects[i].bytes : 0;
  }
  return blocks * PAGE + sizeless;
}

static void check(uint64_t before) {
  uint64_t charged = aq_ledger_used(slice_usage(), 0), held = slice_resident(), limit = slice_control()->cards[0].memory_limit;
  PROMISE(held <= charged + rounding(), "the card holds %llu, charged are %llu", (unsigned long long)held, (unsigned long long)charged);
  PROMISE(charged <= limit || charged <= before, "charged %llu, limit %llu, before %llu", (unsigned long long)charged,
          (unsigned long long)limit, (unsigned long long)before);
}

/* In the order in which each can go: mappings and memory before what they come from. */
static void give_all(void) {
  static const kind order[] = {MEMORY, ARRAY, MIPMAP, MAPPING, HANDLE, POOL, GRAPH, MODULE, STREAM};
  for (size_t k = 0; k < sizeof order / sizeof *order; k++)
    for (int i = 0; i < OBJECTS; i++)
      if (objects[i].kind == order[k]) PROMISE(!give(&objects[i], false, NULL), "what was taken can be given back (kind %d)", order[k]);
  memset(objects, 0, sizeof objects);
  for (int context = 1; context < CONTEXTS; context++) end_context(context);
}

/* Settles what had to wait for its importer, though that is this very process. */
static void ask_for_too_much(void) {
  CUdeviceptr address;
  PROMISE(CALL("cuMemAlloc_v2", (CUdeviceptr *, size_t), &address, UINT64_C(1) << 40), "more than any slice");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input in = {data, size}, none = {NULL, 0};
  slice_open();
  if (!contexts[0]) CALL("cuCtxGetCurrent", (void **), &contexts[0]);
  set_limit(SLICE_BYTES, AQ_ENFORCE_ENFORCE);
  for (int steps = 0; in.left && steps < STEPS; steps++) {
    uint64_t before = aq_ledger_used(slice_usage(), 0);
    step(&in);
    check(before);
  }
  give_all();
  CALL("cuCtxSynchronize", (void));
  trim(&none);
  trim_graphs(&none);
  ask_for_too_much();
  uint64_t charged = aq_ledger_used(slice_usage(), 0);
  PROMISE(!charged && !slice_resident(), "charged %llu, held %llu after the last free", (unsigned long long)charged,
          (unsigned long long)slice_resident());
  return 0;
}
