/* Fills rests of a card with slices, as dear as can be: a knapsack over whole steps.
 * SPDX-License-Identifier: Apache-2.0 */
#include "scoring.h"

void aq_fill(const int64_t *sizes, const double *prices, int64_t count, int64_t steps, double noise, double *worths,
             int32_t *last) {
  worths[0] = 0;
  last[0] = -1;
  for (int64_t rest = 1; rest <= steps; rest++) {
    worths[rest] = worths[rest - 1];
    last[rest] = -1;
    double best = worths[rest - 1] + noise;
    for (int64_t n = 0; n < count && sizes[n] <= rest; n++) {
      double with = worths[rest - sizes[n]] + prices[n];
      if (with > best) {
        best = worths[rest] = with;
        last[rest] = (int32_t)n;
      }
    }
  }
}
