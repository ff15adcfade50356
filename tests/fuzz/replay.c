/* Runs a target over the files given, without a fuzzer: for every compiler.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
  uint8_t *data = malloc(MOST);
  for (int i = 1; i < argc; i++) {
    FILE *file = fopen(argv[i], "rb");
    if (!file) return perror(argv[i]), 2;
    size_t size = fread(data, 1, MOST, file);
    fclose(file);
    fprintf(stderr, "%s\n", argv[i]);
    LLVMFuzzerTestOneInput(data, size);
  }
  free(data);
  return 0;
}
