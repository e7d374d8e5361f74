"""The server's settings: defaults, overridden by a TOML file, then by environment variables, then by flags.

Each setting is described once, at its field: type, limits, unit, choices, default and help. The flags of
`headwater serve`, the environment variables, the reference page and the limits of the lake all derive from it.
"""

from headwater.settings.descriptions import RENAMED, SETTINGS, Setting
from headwater.settings.fields import Mode, Settings
from headwater.settings.loading import OTHER_VARIABLES, SettingsError, load

__all__ = ["OTHER_VARIABLES", "RENAMED", "SETTINGS", "Mode", "Setting", "Settings", "SettingsError", "load"]
