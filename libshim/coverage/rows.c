/* Prints the hook table as the preprocessor sees it, for the coverage report: one row a line, fields parted by tabs.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#define AQ_HOOK(symbol, name, since, stream, duty, parameters) \
  {"hooked", #symbol, #name, #since, #stream, duty, #parameters},
#define AQ_PASSED(symbol, name, since, stream, why) {"passed", #symbol, #name, #since, #stream, why, ""},

static const char *const rows[][7] = {
#include "hooks/cuda.def"
#include "hooks/nvml.def"
#include "hooks/passed.def"
};

int main(void) {
  for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
    for (int field = 0; field < 7; field++) printf("%s%c", rows[row][field], field < 6 ? '\t' : '\n');
  return 0;
}
