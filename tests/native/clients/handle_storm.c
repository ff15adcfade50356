/* Threads that make physical memory, map it by halves, release it while it is mapped, retain it, export and import it, in any
 * order that is legal; one allocation is shared by all. Prints "done" when all is released and unmapped, and waits for its
 * stdin to be closed.
 *
 *   handle_storm SEED THREADS ROUNDS
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PART (2ull << 20)
#define FILE_HANDLE 1

typedef struct {
  int type, handle_types, location_type, location;
  void *unused;
  unsigned char flags[8];
} properties;

static struct {
  int (*create)(uint64_t *, size_t, const properties *, uint64_t);
  int (*release)(uint64_t);
  int (*reserve)(uint64_t *, size_t, size_t, uint64_t, uint64_t);
  int (*map)(uint64_t, size_t, size_t, uint64_t, uint64_t);
  int (*unmap)(uint64_t, size_t);
  int (*retain)(uint64_t *, void *);
  int (*export)(int *, uint64_t, int, uint64_t);
  int (*import)(uint64_t *, void *, int);
} cu;

static uint64_t shared;
static long rounds;

static void need(int status, const char *what) {
  if (!status) return;
  fprintf(stderr, "%s: %d\n", what, status);
  exit(3);
}

static uint64_t make(void) {
  uint64_t handle;
  properties wanted = {.type = 1, .handle_types = FILE_HANDLE, .location_type = 1};
  need(cu.create(&handle, 2 * PART, &wanted, 0), "create");
  return handle;
}

/* The same memory by another handle. */
static uint64_t again(uint64_t handle) {
  int file;
  uint64_t other;
  need(cu.export(&file, handle, FILE_HANDLE, 0), "export");
  need(cu.import(&other, (void *)(intptr_t)file, FILE_HANDLE), "import");
  close(file);
  return other;
}

static void one_round(unsigned *seed, uint64_t address) {
  uint64_t own = make(), handle = rand_r(seed) % 2 ? own : shared, retained, other = 0;
  need(cu.map(address, PART, 0, handle, 0), "map");
  need(cu.map(address + PART, PART, PART, own, 0), "map");
  if (rand_r(seed) % 4 == 0) other = again(handle);
  if (rand_r(seed) % 2) {
    need(cu.retain(&retained, (void *)(uintptr_t)(address + rand_r(seed) % 2 * PART)), "retain");
    need(cu.release(retained), "release what was retained");
  }
  int early = rand_r(seed) % 2;
  if (early) need(cu.release(own), "release");
  need(cu.unmap(address, rand_r(seed) % 2 ? PART : 2 * PART), "unmap");
  cu.unmap(address + PART, PART); /* perhaps it is already */
  if (!early) need(cu.release(own), "release");
  if (other) need(cu.release(other), "release what was imported");
}

static void *storm(void *data) {
  unsigned seed = (unsigned)(uintptr_t)data;
  uint64_t address;
  need(cu.reserve(&address, 2 * PART, 0, 0, 0), "reserve");
  for (long i = 0; i < rounds; i++) one_round(&seed, address);
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[16];
  void *context;
  if (argc < 4) return 2;
  unsigned seed = (unsigned)strtoul(argv[1], NULL, 0);
  int count = atoi(argv[2]);
  rounds = atol(argv[3]);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  static const char *const names[] = {"cuMemCreate", "cuMemRelease", "cuMemAddressReserve", "cuMemMap", "cuMemUnmap",
                                      "cuMemRetainAllocationHandle", "cuMemExportToShareableHandle",
                                      "cuMemImportFromShareableHandle"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) ((void **)&cu)[i] = dlsym(driver, names[i]);
  need(((int (*)(unsigned))dlsym(driver, "cuInit"))(0), "init");
  need(((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0), "retain the context");
  shared = make();
  for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, storm, (void *)(uintptr_t)(seed + (unsigned)i));
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  need(cu.release(shared), "release");
  printf("done\n");
  fflush(stdout);
  return read(STDIN_FILENO, threads, 1) < 0;
}
