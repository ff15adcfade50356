/* How much of a card an image of code can need, as far as the image tells.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CODE_IMAGE_H
#define AQ_CODE_IMAGE_H

#include <stdint.h>

/* What cuModuleLoadData and its like are given: PTX, a cubin or a fat binary. NULL: as if it were empty. */
uint64_t aq_image_bound(const void *image);

/* The same for a file, by its size. */
uint64_t aq_image_bound_of_file(const char *path);

/* For code whose image nobody has seen. */
#define AQ_IMAGE_UNSEEN (UINT64_C(2) << 20)

#endif
