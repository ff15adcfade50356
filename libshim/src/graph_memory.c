/* What graphs need of a device, and the accounts of what devices hold for graphs (pool.c).
 *
 * A launch needs at most the addresses of its allocation nodes, each counted once: the driver gives two nodes of a graph one
 * address where they can share memory. Where the slice does not hold that besides all that is reserved already, less may do:
 * the most that the nodes have at any time, in the order in which they were added. And what graphs have in use together is no
 * more than the most that any launch needed, for each stream, because launches into one stream follow each other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "location.h"
#include "lock.h"
#include "memory.h"
#include "pool_list.h"
#include "stream.h"

#define MAX_DEVICES 16
#define MAX_STREAMS 32
#define UNIT 512 /* what allocations are rounded up to */

bool aq_graph_memory_exists;

/* ---- what graphs need ---- */

typedef struct {
  CUdevice device;
  uint64_t most, peak; /* see above */
  uint64_t left;       /* what it leaves behind when it has run */
} need;

struct aq_graph_needs {
  int count;
  need of[MAX_DEVICES];
};

/* An allocation node. */
typedef struct {
  CUdevice device;
  CUdeviceptr address;
  uint64_t bytes;
  bool freed;
} range;

typedef struct {
  range *ranges;
  size_t count, capacity;
  aq_graph_needs *needs;
  bool failed;
} survey;

static need *need_of(aq_graph_needs *needs, CUdevice device) {
  for (int i = 0; i < needs->count; i++)
    if (needs->of[i].device == device) return &needs->of[i];
  if (needs->count == MAX_DEVICES) return NULL;
  needs->of[needs->count] = (need){.device = device};
  return &needs->of[needs->count++];
}

static void add_range(survey *s, const CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  uint64_t bytes = (params->bytes + UNIT - 1) / UNIT * UNIT;
  need *at = need_of(s->needs, aq_location_device(params->props.location));
  if (s->count == s->capacity) {
    range *grown = realloc(s->ranges, (s->capacity * 2 + 16) * sizeof *grown);
    s->failed |= !grown;
    if (!grown) return;
    s->ranges = grown;
    s->capacity = s->capacity * 2 + 16;
  }
  s->failed |= !at;
  if (!at) return;
  s->ranges[s->count++] = (range){.device = at->device, .address = params->address, .bytes = bytes};
  at->left += bytes;
  if (at->left > at->peak) at->peak = at->left;
}

static void end_range(survey *s, CUdeviceptr address) {
  for (size_t i = s->count; i-- > 0;) {
    range *at = &s->ranges[i];
    if (at->address != address || at->freed) continue;
    at->freed = true;
    need_of(s->needs, at->device)->left -= at->bytes;
    return;
  }
}

static void look_at(survey *s, CUgraphNode node);

static void look_through(survey *s, CUgraph graph) {
  size_t count = 0;
  CUresult (*list)(CUgraph, CUgraphNode *, size_t *) = AQ_CUDA(cuGraphGetNodes);
  if (!list || list(graph, NULL, &count) || !count) return;
  CUgraphNode *nodes = calloc(count, sizeof(CUgraphNode));
  s->failed |= !nodes || list(graph, nodes, &count);
  for (size_t i = 0; i < count && !s->failed; i++) look_at(s, nodes[i]);
  free(nodes);
}

static void look_at(survey *s, CUgraphNode node) {
  int type = 0;
  CUgraph child;
  CUdeviceptr freed;
  CUDA_MEM_ALLOC_NODE_PARAMS params;
  if (!AQ_CUDA(cuGraphNodeGetType) || AQ_CUDA(cuGraphNodeGetType)(node, &type)) return;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !AQ_CUDA(cuGraphMemAllocNodeGetParams)(node, &params)) add_range(s, &params);
  if (type == CU_GRAPH_NODE_TYPE_MEM_FREE && !AQ_CUDA(cuGraphMemFreeNodeGetParams)(node, &freed)) end_range(s, freed);
  if (type == CU_GRAPH_NODE_TYPE_GRAPH && !AQ_CUDA(cuGraphChildGraphNodeGetGraph)(node, &child)) look_through(s, child);
}

static int by_place(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return x->address < y->address ? -1 : x->address > y->address;
}

/* Counts every address once. */
static void add_up(survey *s) {
  CUdeviceptr end = 0;
  qsort(s->ranges, s->count, sizeof *s->ranges, by_place);
  for (size_t i = 0; i < s->count; i++) {
    const range *at = &s->ranges[i];
    bool apart = !i || s->ranges[i - 1].device != at->device || at->address >= end;
    CUdeviceptr from = apart ? at->address : end, to = at->address + at->bytes;
    if (to > from) need_of(s->needs, at->device)->most += to - from;
    end = apart || to > end ? to : end;
  }
}

aq_graph_needs *aq_graph_needs_of(CUgraph graph) {
  survey s = {.needs = calloc(1, sizeof *s.needs)};
  if (!s.needs) return NULL;
  look_through(&s, graph);
  if (s.count) add_up(&s);
  free(s.ranges);
  if (s.count && !s.failed) return s.needs;
  free(s.needs);
  return NULL;
}

void aq_graph_needs_free(aq_graph_needs *needs) { free(needs); }

void aq_graph_memory_keep(CUgraphExec exec, aq_graph_needs *needs) {
  aq_block block;
  if (aq_blocks_take(AQ_BLOCK_EXEC, (uintptr_t)exec, &block)) free(block.detail);
  block = (aq_block){.key = (uintptr_t)exec, .charge.card = AQ_NO_CARD, .kind = AQ_BLOCK_EXEC, .detail = needs};
  if (needs && !aq_blocks_put(&block)) free(needs);
}

/* ---- what is in use ---- */

/* What launches into a stream ever needed at most, while something was in use. */
typedef struct {
  uintptr_t stream;
  uint64_t bytes;
} lease;

/* One device's. */
typedef struct {
  lease leases[MAX_STREAMS];
  int count;
  int beginning;    /* launches that are here, but not under way yet */
  uint32_t changes; /* of that number */
  bool endless;     /* more streams than we remember, or graphs that left memory behind: no telling what is in use */
} ledger;

static aq_lock leasing; /* over ledgers, where `changes` is a release */
static ledger ledgers[MAX_DEVICES];

/* The default stream of each thread's own is as many streams as there are threads. */
static uintptr_t name_of(CUstream stream) {
  return stream == CU_STREAM_PER_THREAD ? (uintptr_t)pthread_self() : (uintptr_t)stream;
}

static void extend(ledger *of, uintptr_t stream, const need *for_one) {
  int i = 0;
  while (i < of->count && of->leases[i].stream != stream) i++;
  of->endless |= i == MAX_STREAMS || for_one->left;
  if (i == MAX_STREAMS) return;
  if (i == of->count) of->leases[of->count++] = (lease){.stream = stream};
  if (for_one->peak > of->leases[i].bytes) of->leases[i].bytes = for_one->peak;
}

/* Under the lock. */
static void change(ledger *of, int by) {
  of->beginning += by;
  __atomic_store_n(&of->changes, of->changes + 1, __ATOMIC_RELEASE);
}

/* Under the lock. `changes` goes on: it is read without. */
static void forget(ledger *of) {
  of->count = 0;
  of->endless = false;
}

static ledger *ledger_of(CUdevice device) { return device >= 0 && device < MAX_DEVICES ? &ledgers[device] : NULL; }

/* The most that graphs can have in use together, of those under way and those beginning. */
static uint64_t most_in_use(CUdevice device) {
  uint64_t sum = 0;
  ledger *of = ledger_of(device);
  if (!of) return UINT64_MAX;
  aq_lock_acquire(&leasing);
  for (int i = 0; i < of->count; i++) sum += of->leases[i].bytes;
  if (of->endless) sum = UINT64_MAX;
  aq_lock_release(&leasing);
  return sum;
}

/* What graphs under way will give back when they have run. */
static uint64_t pending_on(CUdevice device) {
  ledger *of = &ledgers[device];
  aq_lock_acquire(&leasing);
  bool returns = of->count && !of->endless;
  aq_lock_release(&leasing);
  aq_pool *pool = returns ? aq_pool_of_graphs(device) : NULL;
  uint64_t in_use = pool ? aq_pool_used(pool) : AQ_POOL_UNREADABLE;
  return in_use == AQ_POOL_UNREADABLE ? 0 : in_use;
}

uint64_t aq_graph_memory_pending(void) {
  uint64_t pending = 0;
  for (CUdevice device = 0; aq_graph_memory_any() && device < MAX_DEVICES; device++) pending += pending_on(device);
  return pending;
}

/* A launch is here. The ledger begins anew whenever nothing is in use, unless a launch has begun since that was seen. */
static void is_beginning(const need *for_one, CUstream stream, aq_pool *pool) {
  ledger *of = ledger_of(for_one->device);
  if (!of) return;
  uint32_t changes = __atomic_load_n(&of->changes, __ATOMIC_ACQUIRE);
  bool idle = aq_pool_is_idle(pool);
  aq_lock_acquire(&leasing);
  if (idle && !of->beginning && of->changes == changes) forget(of);
  change(of, 1);
  extend(of, name_of(stream), for_one);
  aq_lock_release(&leasing);
}

/* It is under way, or refused. */
static void has_begun(const need *for_one) {
  ledger *of = ledger_of(for_one->device);
  if (!of) return;
  aq_lock_acquire(&leasing);
  change(of, -1);
  aq_lock_release(&leasing);
}

/* ---- launches ---- */

/* The pools of graphs that one call may make grow. */
typedef struct {
  int count;
  aq_growth growths[MAX_DEVICES];
} growing;

typedef struct {
  aq_pool *pool;
  aq_demand demand;
  aq_growth *growth;
} request;

static bool fits(void *data) {
  const request *r = data;
  return aq_pool_may_grow(r->pool, &r->demand, r->growth);
}

static bool begin_on(const need *for_one, CUstream stream, growing *g) {
  aq_pool *pool = aq_pool_of_graphs(for_one->device);
  if (!pool) return true; /* a driver that does not tell */
  const aq_demand demand = {.most = for_one->most, .least = for_one->peak, .all = most_in_use};
  request r = {pool, demand, &g->growths[g->count]};
  uint64_t bytes = aq_pool_whole_steps(demand.most);
  aq_attempt attempt = {fits, &r, for_one->device, bytes, {.stream = stream, .has_stream = true}};
  is_beginning(for_one, stream, pool);
  bool grows = fits(&r) || aq_memory_insist(&attempt);
  has_begun(for_one);
  g->count += grows;
  if (!grows) aq_quota_refused(for_one->device, bytes);
  return grows;
}

/* What was launched cannot be undone: what it reserved beyond its bound, if a driver ever did, is charged as it can be. */
static void end(const growing *g) {
  for (int i = 0; i < g->count; i++) aq_pool_grown(&g->growths[i]);
}

static bool begin(const aq_graph_needs *needs, CUstream stream, growing *g) {
  g->count = 0;
  for (int i = 0; i < needs->count; i++) {
    if (begin_on(&needs->of[i], stream, g)) continue;
    end(g);
    return false;
  }
  return true;
}

CUresult aq_graph_memory_call(CUresult (*driver)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream, int flavour) {
  growing g;
  aq_block block;
  CUstream name = aq_stream_named(stream, flavour);
  bool known = aq_tenant_mode() != AQ_PASS && aq_blocks_get(AQ_BLOCK_EXEC, (uintptr_t)exec, &block);
  if (!known || aq_stream_is_capturing(name)) return driver(exec, stream);
  if (!begin(block.detail, name, &g)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = driver(exec, stream);
  end(&g);
  return result;
}

CUresult aq_graph_memory_call_with(CUresult (*driver)(void *), void *arguments, const aq_graph_needs *needs, CUstream stream) {
  growing g;
  if (!begin(needs, stream, &g)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = driver(arguments);
  end(&g);
  return result;
}

void aq_graph_memory_seen(CUdevice device) {
  if (aq_tenant_mode() == AQ_PASS) return;
  aq_pool_of_graphs(device);
  __atomic_store_n(&aq_graph_memory_exists, true, __ATOMIC_RELAXED);
}

void aq_graph_memory_forget(void) {
  aq_lock_reset(&leasing);
  aq_graph_memory_exists = false;
  for (int i = 0; i < MAX_DEVICES; i++) ledgers[i] = (ledger){.count = 0};
}
