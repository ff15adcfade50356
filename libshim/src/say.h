/* What we tell the person who reads the program's stderr, and the node agent who reads the usage page.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_SAY_H
#define AQ_SAY_H

/* Prints "aliquot: …" in one line to stderr; after a few lines a process says no more. Keeps errno. */
__attribute__((format(printf, 1, 2))) void aq_say(const char *format, ...);

#endif
