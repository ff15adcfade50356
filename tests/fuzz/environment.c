/* HAMi-core's environment with anything in it, one variable a line of the input.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "hami_env.h"
#include "slice.h"

#define VARIABLES 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1), *variables[VARIABLES + 1] = {NULL}, *save = NULL;
  static aq_hami_env env;
  memcpy(text, data, size);
  text[size] = '\0';
  int count = 0;
  for (char *line = strtok_r(text, "\n", &save); line && count < VARIABLES; line = strtok_r(NULL, "\n", &save)) variables[count++] = line;
  aq_hami_read(variables, &env);
  for (int card = 0; card < AQ_MAX_CARDS; card++)
    PROMISE(env.core_percent[card] <= 100, "card %d: %u percent", card, env.core_percent[card]);
  PROMISE(memchr(env.problem, 0, sizeof env.problem), "a sentence without an end");
  free(text);
  return 0;
}
