/* Prints how much of a card the image given as an argument can need.
 * SPDX-License-Identifier: Apache-2.0 */
#include "code_image.h"

#include <stdio.h>

int main(int argc, char **argv) {
  printf("%llu\n", (unsigned long long)aq_image_bound(argc > 1 ? argv[1] : NULL));
  return 0;
}
