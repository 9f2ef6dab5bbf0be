// Compiled once for each compiler and set of flags; every kernel starts from it.
#pragma once
#include "kernel.h"
