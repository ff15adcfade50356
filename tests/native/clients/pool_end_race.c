/* One thread makes and destroys pools while others wait for streams, at which the interceptor looks through all pools.
 *
 *   pool_end_race ROUNDS
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define WAITERS 3

static int (*synchronize)(void *);
static atomic_int done;

static void *wait_for_streams(void *unused) {
  while (!atomic_load(&done))
    if (synchronize(NULL)) exit(4);
  return unused;
}

int main(int argc, char **argv) {
  static const int device_memory[22] = {1, 0, 1, 0};
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context, *pool;
  if (argc < 2 || !driver) return 2;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set_current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
  int (*create)(void **, const void *) = (int (*)(void **, const void *))dlsym(driver, "cuMemPoolCreate");
  int (*destroy)(void *) = (int (*)(void *))dlsym(driver, "cuMemPoolDestroy");
  synchronize = (int (*)(void *))dlsym(driver, "cuStreamSynchronize");
  if (init(0) || retain(&context, 0) || set_current(context)) return 3;
  pthread_t waiters[WAITERS];
  for (int i = 0; i < WAITERS; i++) pthread_create(&waiters[i], NULL, wait_for_streams, NULL);
  for (int i = atoi(argv[1]); i > 0; i--)
    if (create(&pool, device_memory) || destroy(pool)) return 5;
  atomic_store(&done, 1);
  for (int i = 0; i < WAITERS; i++) pthread_join(waiters[i], NULL);
  return 0;
}
