/* Allocates and frees at random, as hard as it can, until its stdin is closed; prints how often it was refused and how
 * often served. Between rounds it prints "." whenever 200 more are done, so that a watcher sees it move.
 *
 *   storm SEED LARGEST_MIB THREADS
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LIVE 8
#define THREADS 64
#define BLOCK (2ull << 20)

static int (*allocate)(uint64_t *, size_t), (*release)(uint64_t), (*set_current)(void *);
static void *context;
static unsigned largest;
static atomic_long served, refused, rounds;
static atomic_int over;

static void *storm(void *data) {
  unsigned seed = *(unsigned *)data;
  uint64_t live[LIVE] = {0};
  set_current(context);
  while (!atomic_load(&over)) {
    uint64_t *place = &live[rand_r(&seed) % LIVE];
    if (*place) {
      if (release(*place)) exit(3);
      *place = 0;
    } else {
      int status = allocate(place, BLOCK * (1 + rand_r(&seed) % (largest / 2)));
      if (status != 0 && status != 2) exit(3);
      atomic_fetch_add(status ? &refused : &served, 1);
    }
    if (atomic_fetch_add(&rounds, 1) % 200 == 0) printf(".\n");
  }
  for (int i = 0; i < LIVE; i++)
    if (live[i] && release(live[i])) exit(3);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  pthread_t threads[THREADS];
  unsigned seeds[THREADS];
  int count = atoi(argv[3]) < THREADS ? atoi(argv[3]) : THREADS;
  largest = (unsigned)atoi(argv[2]);
  setvbuf(stdout, NULL, _IOLBF, 0);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  allocate = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
  release = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
  set_current = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
  ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
  ((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
  for (int i = 0; i < count; i++) {
    seeds[i] = (unsigned)atoi(argv[1]) * THREADS + (unsigned)i;
    pthread_create(&threads[i], NULL, storm, &seeds[i]);
  }
  while (read(STDIN_FILENO, seeds, sizeof *seeds) > 0) {
  }
  atomic_store(&over, 1);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  printf("%ld %ld\n", atomic_load(&served), atomic_load(&refused));
  return 0;
}
