/* The path by which LD_PRELOAD names this library.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_PRELOAD_H
#define AQ_PRELOAD_H

/* When the library is loaded: makes a relative path of it in LD_PRELOAD absolute. The loader would not find it from another
 * directory, and a program that is started there would have no limits. */
void aq_preload_keep(void);

#endif
