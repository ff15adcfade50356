/* Prints how many bytes an array takes: FORMAT WIDTH HEIGHT DEPTH CHANNELS FLAGS [LEVELS].
 * SPDX-License-Identifier: Apache-2.0 */
#include "array_size.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  uint64_t n[7] = {0};
  for (int i = 1; i < argc && i <= 7; i++) n[i - 1] = strtoull(argv[i], NULL, 0);
  CUDA_ARRAY3D_DESCRIPTOR wanted = {n[1], n[2], n[3], (int)n[0], (unsigned)n[4], (unsigned)n[5]};
  uint64_t bytes = n[6] ? aq_mipmap_bytes(&wanted, (unsigned)n[6]) : aq_array_bytes(&wanted);
  printf("%llu\n", (unsigned long long)bytes);
  return 0;
}
