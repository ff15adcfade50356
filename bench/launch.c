/* A CUDA client that launches one kernel many times and prints nanoseconds a launch. Finds the driver as libcudart
 * does. Arguments: the PTX file, launches between two synchronisations, and how often. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int (*function)();

static function need(void *driver, const char *name) {
  function found = (function)dlsym(driver, name);
  if (!found) fprintf(stderr, "the driver has no %s\n", name), exit(1);
  return found;
}

static void check(int result, const char *what) {
  if (result) fprintf(stderr, "%s: error %d\n", what, result), exit(1);
}

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static char *read_text(const char *path) {
  static char text[65536];
  FILE *file = fopen(path, "rb");
  if (!file) perror(path), exit(1);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

int main(int argc, char **argv) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context, *module, *kernel;
  if (argc != 4 || !driver) fprintf(stderr, "%s\n", driver ? "usage: launch PTX BATCH ROUNDS" : dlerror()), exit(1);
  uint64_t nothing = 0;
  void *parameters[] = {&nothing};
  int batch = atoi(argv[2]), rounds = atoi(argv[3]);
  double spent = 0;
  check(need(driver, "cuInit")(0), "cuInit");
  check(need(driver, "cuDevicePrimaryCtxRetain")(&context, 0), "cuDevicePrimaryCtxRetain");
  check(need(driver, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  check(need(driver, "cuModuleLoadData")(&module, read_text(argv[1])), "cuModuleLoadData");
  check(need(driver, "cuModuleGetFunction")(&kernel, module, "aliquot_spin"), "cuModuleGetFunction");
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
      (void *)need(driver, "cuLaunchKernel");
  function synchronize = need(driver, "cuCtxSynchronize");
  for (int round = -1; round < rounds; round++) {
    double began = now_ns();
    for (int i = 0; i < batch; i++) check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
    if (round >= 0) spent += now_ns() - began; /* the first round warms up */
    check(synchronize(), "cuCtxSynchronize");
  }
  printf("%.1f\n", spent / ((double)batch * rounds));
  return 0;
}
