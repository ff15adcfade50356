/* Kills a process after every STRIDE-th instruction of a driver call, from the call's entry to its return, and looks
 * whether all that it held is free again. Prints the number of instructions of the call; exits 1 at the first wrong account.
 *
 *   call_steps CALL STRIDE FIRST PAGE
 *     CALL    see below; PAGE: the tenant's usage page
 *
 * The victims are children of this process, which is of the same tenant and collects them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger.h"
#include "presence.h"
#include "stepping.h"

#define SIZE (2ull << 20)

typedef struct {
  int type, handle_types, location_type, location;
  void *unused;
  unsigned char flags[8];
} properties;

static void *driver;
static aq_usage_page *page;
static aq_process self;
static uint64_t block, address, handle;
static const properties on_card = {.type = 1, .location_type = 1};

/* The functions, looked up before anybody counts instructions. */
#define FUNCTIONS(F)                                                                                 \
  F(cuInit, (unsigned)) F(cuDevicePrimaryCtxRetain, (void **, int)) F(cuCtxSetCurrent, (void *))        \
  F(cuMemAlloc_v2, (uint64_t *, size_t)) F(cuMemFree_v2, (uint64_t))                                    \
  F(cuMemAllocAsync, (uint64_t *, size_t, void *)) F(cuMemFreeAsync, (uint64_t, void *))                \
  F(cuStreamSynchronize, (void *)) F(cuMemCreate, (uint64_t *, size_t, const properties *, uint64_t))   \
  F(cuMemRelease, (uint64_t)) F(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, uint64_t))  \
  F(cuMemMap, (uint64_t, size_t, size_t, uint64_t, uint64_t)) F(cuMemUnmap, (uint64_t, size_t))

#define DECLARE(name, types) static int(*name) types;
FUNCTIONS(DECLARE)
#define LOOK_UP(name, types) name = (int(*) types)dlsym(driver, #name);
static void look_up(void) { FUNCTIONS(LOOK_UP) }

static void must(int status) {
  if (status) _exit(3);
}

static void allocate(void) { must(cuMemAlloc_v2(&block, SIZE)); }
static void release(void) { must(cuMemFree_v2(block)); }
static void allocate_async(void) { must(cuMemAllocAsync(&block, SIZE, NULL)); }
static void release_async(void) { must(cuMemFreeAsync(block, NULL)); }
static void synchronize(void) { must(cuStreamSynchronize(NULL)); }
static void create(void) { must(cuMemCreate(&handle, SIZE, &on_card, 0)); }
static void drop(void) { must(cuMemRelease(handle)); }
static void reserve(void) { must(cuMemAddressReserve(&address, SIZE, 0, 0, 0)); }
static void map(void) { must(cuMemMap(address, SIZE, 0, handle, 0)); }
static void unmap(void) { must(cuMemUnmap(address, SIZE)); }

typedef void (*step)(void);

/* What comes before the call, and the call. */
static const struct {
  const char *name;
  step before[6], call;
} cases[] = {
    {"first", {NULL}, allocate}, /* takes a slot, too */
    {"alloc", {allocate, release}, allocate},
    {"free", {allocate}, release},
    {"alloc_async", {allocate_async, release_async, synchronize}, allocate_async},
    {"free_async", {allocate_async}, release_async},
    {"synchronize", {allocate_async, release_async}, synchronize},
    {"create", {create, drop}, create},
    {"map", {create, reserve}, map},
    {"release", {create, reserve, map}, drop},
    {"unmap", {create, reserve, map, drop}, unmap},
};

static int which(const char *name) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (!strcmp(cases[i].name, name)) return (int)i;
  exit(2);
}

static void victim(int number) {
  void *context;
  must(cuInit(0));
  must(cuDevicePrimaryCtxRetain(&context, 0));
  must(cuCtxSetCurrent(context));
  for (int i = 0; i < 6 && cases[number].before[i]; i++) cases[number].before[i]();
  ptrace(PTRACE_TRACEME, 0, NULL, NULL);
  raise(SIGSTOP);
  cases[number].call();
  raise(SIGSTOP);
  _exit(0);
}

static void expect_nothing_in_use(long instruction) {
  uint64_t used = aq_ledger_used(page, 0), held = 0, owners = 0;
  for (int slot = 0; slot < AQ_MAX_SLOTS; slot++) held += aq_ledger_held(page, slot, 0), owners += page->slots[slot].owner != 0;
  if (!used && !held && !owners) return;
  printf("killed after instruction %ld: card %llu, slots %llu, owners %llu\n", instruction, (unsigned long long)used,
         (unsigned long long)held, (unsigned long long)owners);
  exit(1);
}

static whereabouts try_at(int number, long instruction) {
  int status;
  pid_t child = fork();
  if (child == 0) victim(number);
  if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) exit(3);
  whereabouts reached = go_to(child, instruction);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  aq_ledger_collect(page, &self, AQ_NO_SLOT);
  expect_nothing_in_use(instruction);
  return reached;
}

int main(int argc, char **argv) {
  struct stat info;
  if (argc < 5) return 2;
  int number = which(argv[1]), file = open(argv[4], O_RDWR);
  long stride = atol(argv[2]), at = atol(argv[3]);
  page = mmap(NULL, sizeof(aq_usage_file), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (page == MAP_FAILED || !driver || fstat(file, &info)) return 3;
  look_up();
  self = aq_process_self();
  aq_presence_open(&(aq_page_file){.path = argv[4], .device = info.st_dev, .inode = info.st_ino});
  for (whereabouts reached; (reached = try_at(number, at)) != FINISHED;)
    if (reached == STOPPED) at += stride;
  printf("%ld\n", at);
  return 0;
}
