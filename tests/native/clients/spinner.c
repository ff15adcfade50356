/* Launches kernels of the lengths it is told to, as fast as it can, or with pauses. A line is "COUNT MICROSECONDS GRID PAUSE_US"; "sync" waits for all
 * of them, "nap MILLISECONDS" for none. "refused COUNT MICROSECONDS" launches each behind one like it that the driver refuses. Each line is
 * answered with "done".
 *
 *   spinner PTX */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*function)();

static function launch_kernel, synchronize;
static void *kernel;
static char text[65536];

#define CHECK(call)                                                                \
  do {                                                                             \
    int result = (call);                                                           \
    if (result) fprintf(stderr, "line %d: error %d\n", __LINE__, result), exit(1); \
  } while (0)

static void start(void *driver) {
  void *context, *module;
  int device;
  CHECK(((function)dlsym(driver, "cuInit"))(0));
  CHECK(((function)dlsym(driver, "cuDeviceGet"))(&device, 0));
  CHECK(((function)dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, device));
  CHECK(((function)dlsym(driver, "cuCtxSetCurrent"))(context));
  CHECK(((function)dlsym(driver, "cuModuleLoadData"))(&module, text));
  CHECK(((function)dlsym(driver, "cuModuleGetFunction"))(&kernel, module, "aliquot_spin"));
  launch_kernel = (function)dlsym(driver, "cuLaunchKernel");
  synchronize = (function)dlsym(driver, "cuCtxSynchronize");
}

static void launch(unsigned count, uint64_t microseconds, unsigned grid, unsigned pause_us) {
  uint64_t nanoseconds = microseconds * 1000;
  void *parameters[] = {&nanoseconds};
  for (; count; count--) {
    CHECK(launch_kernel(kernel, grid, 1u, 1u, 1u, 1u, 1u, 0u, (void *)NULL, parameters, (void **)NULL));
    if (pause_us) usleep(pause_us);
  }
}

/* For more shared memory than there is. */
static void launch_behind_refused(unsigned count, uint64_t microseconds) {
  uint64_t nanoseconds = microseconds * 1000;
  void *parameters[] = {&nanoseconds};
  for (; count; count--) {
    CHECK(!launch_kernel(kernel, 1u, 1u, 1u, 1u, 1u, 1u, 1u << 30, (void *)NULL, parameters, (void **)NULL));
    launch(1, microseconds, 1, 0);
  }
}

static void obey(const char *line) {
  unsigned count, grid, pause_us, milliseconds;
  unsigned long microseconds;
  if (!strcmp(line, "sync\n")) CHECK(synchronize());
  else if (sscanf(line, "nap %u", &milliseconds) == 1) usleep(milliseconds * 1000);
  else if (sscanf(line, "refused %u %lu", &count, &microseconds) == 2) launch_behind_refused(count, microseconds);
  else if (sscanf(line, "%u %lu %u %u", &count, &microseconds, &grid, &pause_us) == 4)
    launch(count, microseconds, grid, pause_us);
  else fprintf(stderr, "not understood: %s", line), exit(1);
}

int main(int argc, char **argv) {
  char line[80];
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
  if (!driver || !file || !fread(text, 1, sizeof text - 1, file)) return 1;
  start(driver);
  while (fgets(line, sizeof line, stdin)) {
    obey(line);
    puts("done");
    fflush(stdout);
  }
  return 0;
}
