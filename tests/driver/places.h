/* Where an address lies: in the driver, in the interceptor, or anywhere else; and what a stub of a forwarder's leads to.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef PLACES_H
#define PLACES_H

#include <dlfcn.h>

/* The files that stand for the driver and for the forwarder; either may be missing. */
void places_of(const char *driver, const char *forwarder);

/* A line for an address that is not NULL. */
void print_place(const void *address);

#endif
