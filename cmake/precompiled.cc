// Nothing: a target that makes precompiled headers has to have a source file (CompileAs.cmake).
