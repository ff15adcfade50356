/* SPDX-License-Identifier: Apache-2.0 */
#include "lateness.h"

const uint64_t aq_lateness_bounds_ns[AQ_LATENESS_BOUNDS] = {50000, 100000, 200000, 500000, 1000000, 2000000, 4000000, 8000000, 16000000};

void aq_lateness_count(aq_lateness *lateness, uint64_t late_ns) {
  uint32_t at = 0;
  while (at < AQ_LATENESS_BOUNDS && late_ns > aq_lateness_bounds_ns[at]) at++;
  lateness->counts[at]++;
  lateness->sum_ns += late_ns;
}
