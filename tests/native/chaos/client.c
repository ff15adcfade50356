/* Does anything that takes device memory or submits work, at random, in several threads, until it is killed or told to stop.
 * Every call that it makes is legal: an answer other than success, or out of memory where memory is asked for, ends it with 3.
 *
 *   client WATCH_PAGE TENANT PLACE PLACES SEED THREADS STEPS    STEPS 0: until told
 *
 * Told by letters on its stdin: "g" gives back all that it has and answers "given"; then "s" asks for more than there is,
 * so that what had to linger is settled, leaves the card, and answers "settled"; "r", or the end of the stdin, returns from main.
 * SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFINE(name, parameters) int(*name) parameters;
DRIVER(DEFINE)

watch_page *watch;
entry *mine;
void *primary;
const place device_memory = {1, 0, 1, 0, {0}};

static actor actors[MOST_THREADS];
static int threads;
static unsigned long steps;
static atomic_bool stopping;
static pthread_mutex_t ordering = PTHREAD_MUTEX_INITIALIZER; /* an order that was read is obeyed by the program that has read it */
static char **arguments;

/* ---- what the parts share ---- */

unsigned dice(actor *a, unsigned sides) { return ((unsigned)rand_r(&a->seed) >> 4) % sides; }

/* Mostly whole blocks of the card's, so that rounding hides little; sometimes nearly a whole slice. */
size_t any_size(actor *a) {
  unsigned kind = dice(a, 32);
  if (kind == 0) return (64 + dice(a, 300)) * MIB;
  if (kind < 6) return 1 + dice(a, 5 * MIB);
  return (1 + dice(a, 12)) * BLOCK;
}

void must(int status, const char *what) {
  if (!status) return;
  fprintf(stderr, "chaos client %d: %s: %d\n", (int)getpid(), what, status);
  _exit(3);
}

bool fits(int status, const char *what) {
  if (status != OUT_OF_MEMORY) must(status, what);
  return !status;
}

void allow(object *o, uint64_t bytes) {
  o->uncharged += bytes;
  atomic_fetch_add(&mine->uncharged, bytes);
}

void disallow(object *o) {
  atomic_fetch_sub(&mine->uncharged, o->uncharged);
  *o = (object){.kind = NOTHING};
}

/* ---- steps ---- */

/* A child without CUDA: the driver refuses it, and nobody may hang or fall. */
static void child_without_exec(void) {
  size_t available, total;
  uint64_t address;
  bool refused = cuMemGetInfo_v2(&available, &total) && cuMemAlloc_v2(&address, BLOCK) && cuInit(0);
  _exit(refused ? 0 : 4);
}

static void child_with_exec(actor *a) {
  char seed[16], count[16];
  snprintf(seed, sizeof seed, "%u", dice(a, 1u << 20));
  snprintf(count, sizeof count, "%u", 20 + dice(a, 60));
  char *const own[] = {arguments[0], arguments[1], arguments[2], "-1", arguments[4], seed, "1", count, NULL};
  execv("/proc/self/exe", own);
  _exit(5);
}

static void have_a_child(actor *a) {
  int status = 0;
  if (steps) return;
  bool executes = dice(a, 2);
  pid_t child = fork();
  if (child == 0 && executes) child_with_exec(a);
  if (child == 0) child_without_exec();
  if (child < 0) return;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) must(status, executes ? "child with exec" : "child");
}

/* Another program in this process: whatever it held is gone with the old one. */
static void become_another(actor *a) {
  char seed[16];
  if (dice(a, 20) || steps) return;
  snprintf(seed, sizeof seed, "%u", dice(a, 1u << 20));
  pthread_mutex_lock(&ordering);
  arguments[5] = seed;
  if (!atomic_load(&stopping)) execv("/proc/self/exe", arguments);
  pthread_mutex_unlock(&ordering);
  if (atomic_load(&stopping)) return;
  must(-1, "exec");
}

/* Changes something with another thread. */
static void trade(actor *a) {
  static pthread_mutex_t trading = PTHREAD_MUTEX_INITIALIZER;
  static object market[2 * MOST_THREADS];
  object *own = &a->objects[dice(a, LIVE)], *other = &market[dice(a, 2 * MOST_THREADS)];
  MUST(cuStreamSynchronize(a->stream));
  pthread_mutex_lock(&trading);
  if (atomic_load(&stopping)) { /* all is to be given back: what is on the market, too */
    for (int i = 0; i < 2 * MOST_THREADS; i++)
      if (market[i].kind != NOTHING) give(a, &market[i]);
  } else {
    object kept = *own;
    *own = *other;
    *other = kept;
  }
  pthread_mutex_unlock(&trading);
}

typedef struct {
  unsigned weight;
  void (*take)(actor *, object *);
  void (*other)(actor *);
} step;

static const step all_steps[] = {
    {6, take_memory, NULL},      {3, take_pitched, NULL},   {4, take_managed, NULL},  {6, take_async, NULL},
    {4, take_from_own_pool, NULL}, {3, take_array, NULL},   {2, take_mipmap, NULL},   {5, take_handle, NULL},
    {5, take_mapping, NULL},     {3, take_retained, NULL},  {3, take_captured, NULL}, {3, take_graph, NULL},
    {3, take_module, NULL},      {6, take_from_others, NULL}, {6, NULL, offer_to_others}, {4, NULL, shrink},
    {4, NULL, ask},              {6, NULL, launch},         {4, NULL, relaunch},      {2, NULL, visit_context},
    {2, NULL, visit_green_context}, {2, NULL, change_limits}, {1, NULL, have_a_child}, {1, NULL, become_another},
    {4, NULL, trade},
};

static const step *any_step(actor *a) {
  static unsigned sum;
  if (!sum)
    for (size_t i = 0; i < sizeof all_steps / sizeof *all_steps; i++) sum += all_steps[i].weight;
  unsigned left = dice(a, sum);
  const step *s = all_steps;
  while (left >= s->weight) left -= s++->weight;
  return s;
}

static void make_step(actor *a) {
  const step *s = any_step(a);
  object *o = &a->objects[dice(a, LIVE)];
  if (s->other) {
    s->other(a);
  } else if (o->kind != NOTHING) {
    give(a, o);
  } else {
    s->take(a, o);
    if (o->kind == NOTHING) disallow(o);
  }
  atomic_fetch_add(&mine->progress[a->index], 1);
}

static void give_all(actor *a) {
  for (int i = 0; i < LIVE; i++)
    if (a->objects[i].kind != NOTHING) give(a, &a->objects[i]);
  MUST(cuStreamSynchronize(a->stream));
}

static void *live(void *data) {
  actor *a = data;
  MUST(cuCtxSetCurrent(primary));
  MUST(cuStreamCreate(&a->stream, 1));
  for (unsigned long made = 0; !atomic_load(&stopping) && (!steps || made < steps); made++) make_step(a);
  atomic_store(&mine->progress[a->index], UINT64_MAX); /* nobody waits for this thread any more */
  give_all(a);
  return NULL;
}

/* ---- beginning and end ---- */

static bool claim(entry *free_or_dead, int32_t pid) {
  int32_t owner = atomic_load(&free_or_dead->pid);
  bool dead = !owner || (kill(owner, 0) && errno == ESRCH);
  return dead && atomic_compare_exchange_strong(&free_or_dead->pid, &owner, pid);
}

static void find_entry(void) {
  int32_t pid = (int32_t)getpid();
  for (int i = 0; i < ENTRIES; i++)
    if (atomic_load(&watch->entries[i].pid) == pid) mine = &watch->entries[i];
  for (int i = 0; !mine && i < ENTRIES; i++)
    if (claim(&watch->entries[i], pid)) mine = &watch->entries[i];
  if (!mine) must(-1, "an entry of the watched page");
  atomic_fetch_add(&mine->programs, 1);
  atomic_store(&mine->uncharged, 0);
  for (int i = 0; i < MOST_THREADS; i++) atomic_store(&mine->progress[i], i < threads ? 0 : UINT64_MAX);
}

static void open_watch(const char *path) {
  int file = open(path, O_RDWR | O_CLOEXEC);
  watch = mmap(NULL, sizeof *watch, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || watch == MAP_FAILED) must(-1, "the watched page");
  close(file);
  find_entry();
}

/* The slice may be full for the moment: then there is no context, and it is asked for again. A child does not wait for what its
 * parent may have, who waits for it. */
static void open_card(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
#define LOOK_UP(name, parameters) *(void **)&name = dlsym(driver, #name);
  DRIVER(LOOK_UP)
  MUST(cuInit(0));
  while (!FITS(cuDevicePrimaryCtxRetain(&primary, 0))) {
    if (steps) exit(0);
    atomic_fetch_add(&mine->progress[0], 1);
    usleep(20000);
  }
  MUST(cuCtxSetCurrent(primary));
}

static void settle(void) {
  uint64_t pool, address;
  MUST(cuCtxSynchronize());
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  MUST(cuMemPoolTrimTo(pool, 0));
  MUST(cuDeviceGraphMemTrim(0));
  if (cuMemAlloc_v2(&address, UINT64_C(1) << 40) != OUT_OF_MEMORY) must(-1, "a terabyte");
  ask(NULL); /* the simulated driver looks here for files that were closed */
  MUST(cuDevicePrimaryCtxRelease_v2(0));
}

static char next_order(void) {
  char order = 'r';
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  poll(&input, 1, -1);
  pthread_mutex_lock(&ordering);
  if (read(STDIN_FILENO, &order, 1) != 1) order = 'r';
  if (order == 'g') atomic_store(&stopping, true);
  pthread_mutex_unlock(&ordering);
  return order;
}

static void obey(pthread_t *running) {
  for (char order = next_order(); order != 'r'; order = next_order()) {
    if (order == 'g') {
      for (int i = 0; i < threads; i++) pthread_join(running[i], NULL);
      trade(&actors[0]);
      sharing_close();
      MUST(cuStreamSynchronize(actors[0].stream));
      puts("given");
    } else if (order == 's') {
      settle();
      puts("settled");
    }
    fflush(stdout);
  }
}

int main(int argc, char **argv) {
  pthread_t running[MOST_THREADS];
  if (argc < 8) return 2;
  arguments = argv;
  threads = atoi(argv[6]);
  steps = strtoul(argv[7], NULL, 10);
  open_watch(argv[1]);
  open_card();
  if (atoi(argv[3]) >= 0) sharing_open(argv[2], atoi(argv[3]), atoi(argv[4]));
  for (int i = 0; i < threads; i++) {
    actors[i] = (actor){.seed = (unsigned)atoi(argv[5]) * 16 + (unsigned)i, .index = i};
    while (pthread_create(&running[i], NULL, live, &actors[i])) usleep(20000); /* the machine has too many just now */
  }
  if (!steps) obey(running);
  else for (int i = 0; i < threads; i++) pthread_join(running[i], NULL);
  atomic_store(&mine->pid, 0);
  return 0;
}
