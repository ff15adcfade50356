/* Texels by format: what one takes, and what video formats add to it in further planes. Block-compressed ones have 4 x 4 texels in
 * 8 or 16 bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "array_size.h"

#include <stdbool.h>

typedef struct {
  uint8_t bytes;  /* of a texel of the first plane, or of a block; 0: of one channel, times their number */
  uint8_t halves; /* all planes together, in halves of the first one */
  bool blocks;
} layout;

/* By the low byte of CUarray_format. What is not here is taken for the largest texel there is. */
static layout layout_of(int format) {
  switch (format) {
    case 0x50: case 0xa8: case 0xa9: return (layout){4, 2, false};                         /* 10:10:10:2, AYUV, Y410 */
    case 0x51: case 0x52: return (layout){4, 2, false};                                    /* packed 4:2:2 and 4:4:4 */
    case 0x53: case 0x59: case 0xb0: return (layout){1, 3, false};                         /* 4:2:0 of bytes */
    case 0x54: case 0x5a: case 0x9f: case 0xa1: return (layout){2, 3, false};              /* 4:2:0 of words */
    case 0x55: case 0x5b: case 0xa2: return (layout){1, 4, false};                         /* 4:2:2 of bytes */
    case 0x56: case 0x5c: case 0xa3: case 0xa4: return (layout){2, 4, false};              /* 4:2:2 of words */
    case 0x57: case 0x5d: case 0xb2: case 0xb4: return (layout){1, 6, false};              /* 4:4:4 of bytes */
    case 0x58: case 0x5e: case 0xb3: case 0xb5: return (layout){2, 6, false};              /* 4:4:4 of words */
    case 0xa5: return (layout){2, 2, false};                                               /* YUY2 */
    case 0xa6: case 0xa7: return (layout){4, 2, false};                                    /* Y210, Y216 */
    case 0x91: case 0x92: case 0x97: case 0x98: return (layout){8, 2, true};               /* BC1, BC4 */
    case 0x93: case 0x94: case 0x95: case 0x96: case 0x99: case 0x9a: case 0x9b: case 0x9c: case 0x9d: case 0x9e:
      return (layout){16, 2, true};                                                        /* BC2, BC3, BC5, BC6, BC7 */
    default: return (layout){format >= 0xc0 && format <= 0xcb ? 0 : 8, 2, false};
  }
}

/* Bytes of one channel of plain formats, 0 of others. */
static unsigned channel_bytes(int format) {
  switch (format) {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    default: return 0;
  }
}

/* Normalised formats say their channels themselves: 1, 2 and 4, of bytes and then of words, without a sign and then with. */
static unsigned normalised_bytes(int format) {
  unsigned at = (unsigned)format - 0xc0;
  return (1u << at % 3) * (at % 6 < 3 ? 1 : 2);
}

static unsigned texel_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, layout l) {
  if (channel_bytes(d->Format)) return channel_bytes(d->Format) * d->NumChannels;
  return l.bytes ? l.bytes : normalised_bytes(d->Format);
}

static uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t at_least_one(uint64_t n) { return n ? n : 1; }

static uint64_t rounded_up(uint64_t n, uint64_t unit) { return plus(n, unit - 1) == UINT64_MAX ? n : (n + unit - 1) / unit * unit; }

uint64_t aq_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d) {
  layout l = layout_of(d->Format);
  if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
  uint64_t width = at_least_one(d->Width), height = at_least_one(d->Height);
  if (l.blocks) width = rounded_up(width, 4) / 4, height = rounded_up(height, 4) / 4;
  uint64_t row = rounded_up(times(width, texel_bytes(d, l)), AQ_PITCH);
  uint64_t plane = times(times(row, height), at_least_one(d->Depth));
  return l.halves == 2 ? plane : times(plus(plane, 1) / 2, l.halves);
}

/* Halves each side; layers (and a cube's faces) are not a side. False: there was nothing to halve. */
static bool halve(CUDA_ARRAY3D_DESCRIPTOR *d) {
  bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
  bool deep = d->Depth > 1 && !layered;
  if (d->Width <= 1 && d->Height <= 1 && !deep) return false;
  if (d->Width > 1) d->Width /= 2;
  if (d->Height > 1) d->Height /= 2;
  if (deep) d->Depth /= 2;
  return true;
}

uint64_t aq_mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels) {
  CUDA_ARRAY3D_DESCRIPTOR d = *descriptor;
  uint64_t bytes = aq_array_bytes(&d);
  while (levels-- > 1 && halve(&d)) bytes = plus(bytes, aq_array_bytes(&d));
  return bytes;
}
