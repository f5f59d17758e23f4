"""(being written: the frozen contract: load, check, digest, freeze, project)"""
